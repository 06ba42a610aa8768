"""What a node agent may write: when RBAC grants it everything, so that the policies alone must hold, and as deployed.

Tokens are real, fetched by the kubelet's identity for the DaemonSet's pod on each node. Each line of the tables is one
request of a node's agent; the other node's agent tries the same with the names swapped, so "own" and "other" are both
proved: a stolen token is worth its own node and no more.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.builders import objects as builders
from tests.e2e import fleet
from tests.e2e.agent_node_requests import FOREIGN_FIELDS, FOREIGN_RESOURCES, NODE_CASES, OUR_RESOURCES
from tests.e2e.agent_requests import (
    EVENT_CASES,
    EVENTS,
    LEASE_CASES,
    OTHER_CASES,
    PLAN_CASES,
    Case,
    event,
    filled,
    lease,
)
from tests.e2e.fleet import KEPT_TAINT, EnabledNode
from tests.e2e.real_cluster import (
    AGENT,
    APPLY,
    JSON_PATCH,
    LEASES,
    MERGE,
    NODES,
    PLANS,
    PODS,
    STRATEGIC,
    Answer,
    RealCluster,
    call,
    plan,
)
from tests.e2e.wide_rights import everything_granted
from tests.waiting import eventually

CASES = [*PLAN_CASES, *LEASE_CASES, *EVENT_CASES, *NODE_CASES, *OTHER_CASES]
Nodes = tuple[EnabledNode, EnabledNode]


@pytest.fixture(scope="module")
def nodes(cluster: RealCluster) -> Iterator[Nodes]:
    """Two enabled nodes with their plans, and what else the requests are about."""
    found = (fleet.enable(cluster, "agent-a"), fleet.enable(cluster, "agent-b"))
    for one in found:
        apply.create(cluster.admin, PLANS, plan(one.name))
        apply.create(cluster.admin, "/api/v1/namespaces/default/pods", _pod(f"e2e-{one.name}-user", one.name))
        apply.create(cluster.admin, LEASES, lease(names.agent_lease(one.name)))
    apply.create(cluster.admin, EVENTS, {**event("kubelet", "x"), "metadata": {"name": "e2e-foreign"}})
    yield found
    apply.delete(cluster.admin, f"{EVENTS}/e2e-foreign")
    for one in found:
        for path in (f"{PLANS}/{one.name}", f"{NODES}/{one.name}", f"{LEASES}/{names.agent_lease(one.name)}"):
            apply.delete(cluster.admin, path)


@pytest.fixture(scope="module")
def wide(cluster: RealCluster, nodes: Nodes) -> Iterator[Nodes]:
    """RBAC grants the agents everything."""
    with everything_granted(cluster, AGENT):
        yield nodes


def _pod(name: str, node_name: str) -> dict[str, Any]:
    tolerations = [{"operator": "Exists"}]
    return builders.manifest(builders.pod(name, node=node_name, requests={}, tolerations=tolerations))


def attempt(cluster: RealCluster, api: ApiClient, own: EnabledNode, other: EnabledNode, case: Case) -> Answer:
    """One line of the tables; bodies of a PUT are made from what is there."""
    body: Any = filled(case.body, own, other)
    if case.method == "PUT":
        body = apply.get(cluster.admin, filled(case.path, own, other).removesuffix("/status"))
        if case.body == "PUT-CORDON":
            body["spec"]["unschedulable"] = True
        else:
            body["spec"]["planned"] = {"gpus": []}
            body["metadata"]["labels"] = {"a": "b"}
    return call(api, case.method, filled(case.path, own, other), body, case.content_type, **case.query)


@pytest.mark.parametrize("swapped", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_deployed(cluster: RealCluster, nodes: Nodes, case: Case, swapped: bool) -> None:
    """By RBAC and policies together; which of them refuses is no matter here."""
    own, other = (nodes[1], nodes[0]) if swapped else nodes
    answer = attempt(cluster, own.agent, own, other, case)
    if case.says or case.method == "PUT":  # which the policies let pass, and RBAC, as deployed, does not grant
        assert answer.status == 403, answer
    else:
        assert answer.allowed, answer.message


@pytest.mark.parametrize("swapped", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_policies_alone(cluster: RealCluster, wide: Nodes, case: Case, swapped: bool) -> None:
    own, other = (wide[1], wide[0]) if swapped else wide
    before = apply.get(cluster.admin, f"{PLANS}/{own.name}")
    answer = attempt(cluster, own.agent, own, other, case)
    if case.says:
        assert answer.status == 403, answer
        assert filled(case.says, own, other) in answer.message
    else:
        assert answer.allowed, answer.message
    after = apply.get(cluster.admin, f"{PLANS}/{own.name}")
    assert after["spec"] == before["spec"], "whatever is allowed, a plan's spec is not the agent's"
    assert after["metadata"].get("labels") == before["metadata"].get("labels")


def _forms(cluster: RealCluster, name: str, field: str, key: str | None, value: Any) -> Iterator[tuple[str, Any, str]]:
    """One change of a Node's status by every verb and patch type: method, body, content type."""
    status = {field: value if key is None else {key: value}}
    yield "PATCH", {"status": status}, MERGE
    yield "PATCH", {"status": status}, STRATEGIC
    live = apply.get(cluster.admin, f"{NODES}/{name}")
    found = live["status"].get(field)
    there = found is not None if key is None else key in found
    if value is not None:
        yield "PATCH", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}, APPLY
    operation = "remove" if value is None else "replace" if there else "add"
    target = f"/status/{field}" + (f"/{key.replace('/', '~1')}" if key else "")
    yield "PATCH", [{"op": operation, "path": target, **({} if value is None else {"value": value})}], JSON_PATCH
    if key is None:
        live["status"][field] = value
    elif value is None:
        del live["status"][field][key]
    else:
        live["status"][field][key] = value
    yield "PUT", live, "application/json"


def _write(cluster: RealCluster, node: EnabledNode, field: str, key: str | None, value: Any) -> list[Answer]:
    query = {"dryRun": "All"}
    found = []
    for method, body, content_type in _forms(cluster, node.name, field, key, value):
        more = {"fieldManager": names.AGENT_MANAGER, "force": "true"} if content_type == APPLY else {}
        path = f"{NODES}/{node.name}/status"
        found.append(call(node.agent, method, path, json.loads(json.dumps(body)), content_type, **query, **more))
    return found


@pytest.mark.parametrize("field", ["capacity", "allocatable"])
def test_our_amounts_by_every_verb(cluster: RealCluster, wide: Nodes, field: str) -> None:
    for resource in OUR_RESOURCES:
        answers = _write(cluster, wide[0], field, resource, "3")
        assert len(answers) == 5
        assert all(answer.allowed for answer in answers), (resource, answers)
    offer = {"status": {"capacity": {"nvidia.com/gpu": "2"}, "allocatable": {"nvidia.com/gpu": "2"}}}
    assert call(wide[0].agent, "PATCH", f"{NODES}/{wide[0].name}/status", offer, MERGE).allowed
    assert all(answer.allowed for answer in _write(cluster, wide[0], field, "nvidia.com/gpu", None))


@pytest.mark.parametrize("field", ["capacity", "allocatable"])
def test_others_amounts_by_every_verb(cluster: RealCluster, wide: Nodes, field: str) -> None:
    """Neither added, nor changed, nor taken away."""
    name = wide[0].name
    foreign = {"status": {each: {"example.dev/nic": "1"} for each in ("capacity", "allocatable")}}
    apply.merge_patch(cluster.admin, f"{NODES}/{name}/status", foreign)
    there = apply.get(cluster.admin, f"{NODES}/{name}")["status"][field]
    for resource in FOREIGN_RESOURCES:
        for value in ("7", None) if resource in there else ("7",):
            for answer in _write(cluster, wide[0], field, resource, value):
                assert answer.status == 403, (resource, value, answer)
                assert "the only amounts that it may change are those of GPU resources" in answer.message


@pytest.mark.parametrize("field", FOREIGN_FIELDS)
def test_the_rest_of_the_status_by_every_verb(cluster: RealCluster, wide: Nodes, field: str) -> None:
    refused = 0
    for answer in _write(cluster, wide[0], field, None, FOREIGN_FIELDS[field]):
        if answer.status in {404, 422}:
            continue  # nothing to replace, or no such field in this version's schema
        if answer.allowed:
            written = answer.body["status"].get(field)
            assert written == apply.get(cluster.admin, f"{NODES}/{wide[0].name}")["status"].get(field), answer
            continue  # the API server dropped it by itself
        assert answer.status == 403, answer
        assert "of a node's status it may change capacity and allocatable only" in answer.message
        refused += 1
    assert refused or field in ("config", "runtimeHandlers")


def test_a_token_that_is_bound_to_no_pod_writes_nothing(cluster: RealCluster, wide: Nodes) -> None:
    api = cluster.bearer(cluster.token(AGENT))
    # A request that is invalid by itself is refused before the policies see it.
    apply.merge_patch(cluster.admin, f"{NODES}/{wide[0].name}", {"spec": {"taints": [KEPT_TAINT]}})
    for case in CASES:
        answer = attempt(cluster, api, *wide, case)
        assert answer.status == 403, (case.name, answer)
        # What two policies refuse is answered by either.
        sentence = "denied request" if case.says else "the token is not bound to a pod on a node"
        assert sentence in answer.message, (case.name, answer)


def test_a_kubelet_gets_tokens_for_its_own_pods_only(cluster: RealCluster, nodes: Nodes) -> None:
    a, b = nodes
    path = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/{AGENT}/token"
    for pod in (b.agent_pod, None):
        spec: dict[str, Any] = {}
        if pod is not None:
            bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            spec = {"boundObjectRef": bound}
        assert call(cluster.kubelet(a.name), "POST", path, {"spec": spec}).status == 403


@pytest.mark.parametrize("gone", ["pod", "node"])
def test_a_token_dies_with_its_pod(cluster: RealCluster, gone: str) -> None:
    """With its node, too, once the pods of that node are collected."""
    one = fleet.enable(cluster, f"agent-without-{gone}")
    assert call(one.agent, "GET", f"{NODES}/{one.name}").allowed
    if gone == "node":
        apply.delete(cluster.admin, f"{NODES}/{one.name}")
        apply.create(cluster.admin, PLANS, plan("agent-elsewhere"))
        elsewhere = {"status": {"observedGeneration": 1}}
        assert call(one.agent, "PATCH", f"{PLANS}/agent-elsewhere/status", elsewhere, MERGE).status in (401, 403)
        apply.delete(cluster.admin, f"{PLANS}/agent-elsewhere")
    else:
        apply.delete(cluster.admin, f"{PODS}/{one.agent_pod['metadata']['name']}", grace_seconds=0)
    eventually(lambda: call(one.agent, "GET", f"{NODES}/x").status == 401, "the token is refused", seconds=180)
    for method, path in (("PATCH", f"{PLANS}/{one.name}/status"), ("POST", LEASES), ("POST", EVENTS)):
        assert call(one.agent, method, path, {}, MERGE if method == "PATCH" else "application/json").status == 401
    call(cluster.admin, "DELETE", f"{NODES}/{one.name}")

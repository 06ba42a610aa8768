"""What the controller may write of plans when RBAC grants it everything: the policies alone must hold.

Of a plan's spec `planned`, and in Manual or paused plans only that pinned indexes leave it; of its status two
conditions. What it may write in addition to plans is in test_controller_cluster_policy.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.builders import objects
from tests.e2e import fleet
from tests.e2e.real_cluster import (
    APPLY,
    CONTROLLER,
    JSON_PATCH,
    LEASES,
    MERGE,
    NODES,
    PLANS,
    Answer,
    RealCluster,
    call,
    plan,
)
from tests.e2e.wide_rights import everything_granted

NAME = "controlled"
CHANGING = {"key": names.TAINT_CHANGING, "effect": "NoSchedule"}
WHOLE = {"index": 0, "whole": {}}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "nowhere", "uid": "00000000-0000-0000-0000-000000000000"}
POD = "/api/v1/namespaces/default/pods/e2e-nominated"
SEVEN = [{"profile": "1g.10gb", "start": start} for start in range(7)]


def cut(index: int, instances: list[dict[str, Any]] = SEVEN) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index:08x}", "mig": {"instances": instances}}


@pytest.fixture(scope="module")
def controller(cluster: RealCluster) -> Iterator[ApiClient]:
    """The controller's own token, and an RBAC that grants it everything."""
    apply.create(cluster.admin, NODES, fleet.node(NAME))
    apply.create(cluster.admin, POD.rpartition("/")[0], objects.manifest(objects.pod("e2e-nominated"), status=False))
    with everything_granted(cluster, CONTROLLER):
        yield fleet.controller(cluster)
    for path in (POD, f"{NODES}/{NAME}"):
        apply.delete(cluster.admin, path)
    call(cluster.admin, "DELETE", f"{PLANS}/{NAME}")


@pytest.fixture
def made(cluster: RealCluster, controller: ApiClient) -> None:
    """A fresh plan, with GPUs 0 and 1 planned."""
    call(cluster.admin, "DELETE", f"{PLANS}/{NAME}")
    apply.create(controller, PLANS, plan(NAME), manager=names.CONTROLLER_MANAGER)
    assert planned(controller, cut(0), cut(1)).allowed


def planned(api: ApiClient, *items: dict[str, Any]) -> Answer:
    """The controller's one write to a spec."""
    body = plan(NAME, planned={"gpus": list(items)})
    return call(api, "PATCH", f"{PLANS}/{NAME}", body, APPLY, fieldManager=names.CONTROLLER_MANAGER, force="true")


def people_write(cluster: RealCluster, **spec: Any) -> None:
    apply.merge_patch(cluster.admin, f"{PLANS}/{NAME}", {"spec": spec})


@pytest.mark.usefixtures("made")
def test_planned_changes_freely_in_auto(controller: ApiClient) -> None:
    assert planned(controller, cut(0, []), cut(2)).allowed
    assert planned(controller).allowed


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "spec",
    [
        {"gpus": [WHOLE]},
        {"mode": "Auto"},
        {"mode": "Manual"},
        {"paused": True},
        {"devicePlugin": {"backend": "nvidia"}},
    ],
    ids=str,
)
def test_the_rest_of_the_spec_is_peoples(controller: ApiClient, spec: dict[str, Any]) -> None:
    refused = call(controller, "PATCH", f"{PLANS}/{NAME}", {"spec": spec}, MERGE)
    assert refused.status == 403
    assert "may write spec.planned only; gpus, mode, paused and devicePlugin belong to people" in refused.message


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("frozen", [{"mode": "Manual"}, {"paused": True}], ids=str)
def test_a_frozen_plan_loses_pinned_indexes_and_nothing_else(
    cluster: RealCluster, controller: ApiClient, frozen: dict[str, Any]
) -> None:
    people_write(cluster, **frozen, gpus=[WHOLE])
    sentence = "this plan is Manual or paused; all that may change in spec.planned is that pinned indexes leave it"
    for items in (
        [cut(0)],  # 1 is not pinned
        [],
        [cut(0), cut(1), cut(2)],
        [cut(0, []), cut(1)],
        [cut(1, [])],
    ):
        refused = planned(controller, *items)
        assert refused.status == 403, items
        assert sentence in refused.message
    assert planned(controller, cut(0), cut(1)).allowed  # no change
    assert planned(controller, cut(1)).allowed  # 0 is pinned
    refused = call(controller, "PATCH", f"{PLANS}/{NAME}", {"spec": {"planned": None}}, MERGE)
    assert refused.status == 403
    people_write(cluster, gpus=[WHOLE, {"index": 1, "whole": {}}])
    assert planned(controller).allowed


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_metadata_is_not_its_own(controller: ApiClient, field: str) -> None:
    for path in (f"{PLANS}/{NAME}", f"{NODES}/{NAME}", f"{POD}/status"):
        refused = call(controller, "PATCH", path, {"metadata": {field: {"a": "b"}}}, MERGE)
        assert refused.status == 403, path
        rule = "labels, annotations, finalizers and owners"
        if path == f"{NODES}/{NAME}":
            rule = "gpuplan.dev/node-agent only" if field == "labels" else "gpuplan.dev/operator-labels only"
        assert rule in refused.message
    # A custom resource's status subresource ignores metadata by itself.
    body = {"metadata": {field: {"a": "b"}}}
    assert field not in call(controller, "PATCH", f"{PLANS}/{NAME}/status", body, MERGE).body["metadata"]


def test_nothing_that_it_creates_hangs_on_others(cluster: RealCluster, controller: ApiClient) -> None:
    """Deleting an owner deletes the plan with it, pins included; a finalizer keeps it forever."""
    for fields in ({"ownerReferences": [OWNER]}, {"finalizers": ["example.dev/x"]}):
        body = {**plan("controlled-new"), "metadata": {"name": "controlled-new", **fields}}
        refused = call(controller, "POST", PLANS, body)
        assert refused.status == 403
        assert "have neither owners nor finalizers" in refused.message
        refused = call(controller, "PATCH", f"{PLANS}/{NAME}", {"metadata": fields}, MERGE)
        assert refused.status in (403, 404)
        refused = call(controller, "POST", LEASES, objects.lease(names.CONTROLLER_LEASE, **fields))
        assert refused.status == 403


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("frozen", [{"mode": "Manual"}, {"paused": True}], ids=str)
def test_no_way_around_a_frozen_plan(cluster: RealCluster, controller: ApiClient, frozen: dict[str, Any]) -> None:
    """By whatever verb, patch type, manager or subresource."""
    people_write(cluster, **frozen)
    path = f"{PLANS}/{NAME}"
    live = apply.get(cluster.admin, path)
    thawed = {**live["spec"], "planned": {"gpus": [cut(5)]}, "mode": "Auto", "paused": False}
    attempts: list[tuple[str, str, Any, str, dict[str, str]]] = [
        ("PUT", path, {**live, "spec": thawed}, "application/json", {}),
        ("PATCH", path, {"spec": {"planned": None}}, MERGE, {}),
        ("PATCH", path, [{"op": "remove", "path": "/spec/planned/gpus/0"}], JSON_PATCH, {}),
        ("PATCH", path, [{"op": "replace", "path": "/spec/planned/gpus/0/index", "value": 7}], JSON_PATCH, {}),
        ("PATCH", path, plan(NAME, planned={"gpus": []}), APPLY, {"fieldManager": "kubectl", "force": "true"}),
        ("PATCH", path, plan(NAME), APPLY, {"fieldManager": names.CONTROLLER_MANAGER, "force": "true"}),
        ("DELETE", path, None, "application/json", {}),
        ("DELETE", PLANS, None, "application/json", {}),
    ]
    for method, where, body, content_type, query in attempts:
        refused = call(controller, method, where, body, content_type, **query)
        assert refused.status == 403, (method, body, refused)
    spec_in_status = {**live, "spec": thawed, "status": {**live["status"], "conditions": []}}
    assert call(controller, "PUT", f"{path}/status", spec_in_status).allowed, "the API server ignores spec there"
    assert call(controller, "PATCH", f"{path}/scale", {"spec": {"replicas": 0}}, MERGE).status == 404
    assert apply.get(cluster.admin, path)["spec"] == live["spec"]


def test_a_new_plan_holds_node_name_only(controller: ApiClient) -> None:
    for spec in ({"mode": "Auto"}, {"gpus": [WHOLE]}, {"planned": {"gpus": [WHOLE]}}):
        refused = call(controller, "POST", PLANS, plan("controlled-new", **spec))
        assert refused.status == 403
        assert "a new plan holds nodeName only" in refused.message
    assert call(controller, "POST", PLANS, plan("controlled-new"), dryRun="All").allowed


@pytest.mark.usefixtures("made")
def test_it_deletes_plans_in_which_no_person_wrote(cluster: RealCluster, controller: ApiClient) -> None:
    written: tuple[dict[str, Any], ...] = ({"gpus": [WHOLE]}, {"mode": "Auto"}, {"paused": False}, {"devicePlugin": {}})
    for spec in written:
        people_write(cluster, **spec)
        refused = call(controller, "DELETE", f"{PLANS}/{NAME}")
        assert refused.status == 403
        assert "people wrote in this plan, so it is theirs to delete" in refused.message
        people_write(cluster, **dict.fromkeys(spec))
    assert call(controller, "DELETE", f"{PLANS}/{NAME}").allowed


def _condition(kind: str, status: str = "Unknown", reason: str = "AgentSilent") -> dict[str, Any]:
    return objects.condition(kind, status, reason)


@pytest.mark.usefixtures("made")
def test_of_the_status_three_conditions(cluster: RealCluster, controller: ApiClient) -> None:
    path = f"{PLANS}/{NAME}"
    agents = {
        **plan(NAME),
        "status": {
            "observedGeneration": 1,
            "gpus": [{"index": 0, "state": "Ready"}],
            "conditions": [_condition("Ready", "True", "Confirmed"), _condition("Applied", "True", "Confirmed")],
        },
    }
    apply.apply_status(cluster.agent_of(NAME), path, agents, manager=names.AGENT_MANAGER)

    def attempt(**status: Any) -> Answer:
        body = {**plan(NAME), "status": status}
        query = {"fieldManager": names.CONTROLLER_MANAGER, "force": "true"}
        return call(controller, "PATCH", f"{path}/status", body, APPLY, **query)

    assert attempt(conditions=[_condition("AgentAlive", "True", "Heartbeat")]).allowed
    assert attempt(conditions=[_condition("AgentAlive", "False"), _condition("Ready")]).allowed
    own = [_condition("AgentAlive", "False"), _condition("Ready"), _condition("ServedByDRA", "True", "ForeignOwner")]
    assert attempt(conditions=own).allowed
    for status in (
        {"conditions": [*own, _condition("Applied", "False")]},
        {"conditions": [*own, _condition("Stalled")]},
        {"conditions": own, "observedGeneration": 9},
        {"conditions": own, "gpus": []},
        {"conditions": own, "summary": {"mig": "0/7"}},
    ):
        refused = attempt(**status)
        assert refused.status == 403, status
        assert "it may write the conditions AgentAlive, Ready and ServedByDRA only" in refused.message
    refused = attempt(conditions=[_condition("Ready", "True", "Confirmed"), _condition("AgentAlive", "False")])
    assert refused.status == 403
    assert "it may say that Ready is Unknown, nothing else of it" in refused.message
    # An agent that is back writes Ready itself; the controller's next write of AgentAlive keeps that.
    apply.apply_status(cluster.agent_of(NAME), path, agents, manager=names.AGENT_MANAGER)
    assert attempt(conditions=[_condition("AgentAlive", "True", "Heartbeat")]).allowed

"""Who may write which field of a plan: people their part of the spec, with the right on the node; no person planned.

People are users with client certificates and RBAC of their own. What the controller may write is in
test_controller_policy.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from crds.v1alpha1 import names
from kube import apply
from tests.e2e.real_cluster import APPLY, CONTROLLER, JSON_PATCH, MERGE, PLANS, RealCluster, call, plan
from tests.waiting import eventually

MINE, OTHERS = "people-mine", "people-others"
WHOLE = {"index": 0, "whole": {}}
CUT = {"index": 1, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}
NO_RIGHT = f"who writes the plan of node {OTHERS} needs the right to patch that node"
CONTROLLERS_ALONE = "spec.planned is written by the gpuplan controller; pin a GPU by listing it in spec.gpus"


def next_key(found: dict[str, Any]) -> str:
    return next(iter(found))


@pytest.fixture(scope="module", autouse=True)
def people(cluster: RealCluster) -> Iterator[None]:
    """alice may do everything with plans, and patch one node; carol may patch nodes and only read plans."""
    create = ("create", "clusterrole")
    cluster.kubectl(*create, "e2e-plans", "--verb=*", "--resource=gpupartitionplans.gpuplan.dev", check=True)
    cluster.kubectl(*create, "e2e-node", "--verb=patch", "--resource=nodes", f"--resource-name={MINE}", check=True)
    cluster.kubectl(*create, "e2e-nodes", "--verb=patch", "--resource=nodes", check=True)
    for role, user in (("e2e-plans", "alice"), ("e2e-node", "alice"), ("e2e-nodes", "carol")):
        cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={user}", check=True)
    eventually(lambda: _create(cluster, MINE, dryRun="All").allowed, "RBAC of alice in force")
    yield
    cluster.kubectl("delete", "clusterrolebinding,clusterrole", "e2e-plans", "e2e-node", "e2e-nodes")
    for name in (MINE, OTHERS):
        cluster.kubectl("delete", "gpp", name, "--ignore-not-found")


@pytest.fixture(autouse=True)
def plans(cluster: RealCluster) -> None:
    """Both plans, made again, each with something planned by the controller."""
    for name in (MINE, OTHERS):
        call(cluster.admin, "PATCH", f"{PLANS}/{name}", {"metadata": {"finalizers": None}}, MERGE)
        call(cluster.admin, "DELETE", f"{PLANS}/{name}")
        apply.create(cluster.admin, PLANS, plan(name))
        apply.apply(
            cluster.bearer(cluster.token(CONTROLLER)),
            f"{PLANS}/{name}",
            plan(name, planned={"gpus": [CUT]}),
            manager=names.CONTROLLER_MANAGER,
            force=True,
        )


def _create(cluster: RealCluster, name: str, **query: str) -> Any:
    return call(cluster.person("alice"), "POST", PLANS, plan(name), **query)


@pytest.mark.parametrize(
    "spec",
    [
        {"gpus": [WHOLE]},
        {"mode": "Manual"},
        {"paused": True},
        {"devicePlugin": {"backend": "nvidia"}},
        {"planned": None},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_a_person_writes_their_fields_with_the_right_on_the_node(cluster: RealCluster, spec: dict[str, Any]) -> None:
    alice = cluster.person("alice")
    assert call(alice, "PATCH", f"{PLANS}/{MINE}", {"spec": spec}, MERGE).allowed
    refused = call(alice, "PATCH", f"{PLANS}/{OTHERS}", {"spec": spec}, MERGE)
    assert refused.status == 403
    assert NO_RIGHT in refused.message


def test_create_and_delete_need_the_right_on_the_node(cluster: RealCluster) -> None:
    alice = cluster.person("alice")
    for name, allowed in ((MINE, True), (OTHERS, False)):
        deleted = call(alice, "DELETE", f"{PLANS}/{name}", dryRun="All")
        assert deleted.allowed is allowed, deleted.message
        apply.delete(cluster.admin, f"{PLANS}/{name}")
        created = _create(cluster, name, dryRun="All")
        assert created.allowed is allowed, created.message
    assert NO_RIGHT in created.message


def test_metadata_needs_no_right_on_the_node(cluster: RealCluster) -> None:
    body = {"metadata": {"labels": {"team": "a"}}}
    assert call(cluster.person("alice"), "PATCH", f"{PLANS}/{OTHERS}", body, MERGE).allowed


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "nowhere", "uid": "00000000-0000-0000-0000-000000000000"}


@pytest.mark.parametrize("fields", [{"ownerReferences": [OWNER]}, {"finalizers": ["example.dev/x"]}], ids=next_key)
def test_the_garbage_collector_deletes_no_plan_for_anyone(cluster: RealCluster, fields: dict[str, Any]) -> None:
    """It would: a plan whose owner does not exist is deleted soon, whichever client wrote the owner into it."""
    alice = cluster.person("alice")
    refused = call(alice, "PATCH", f"{PLANS}/{OTHERS}", {"metadata": fields}, MERGE)
    assert refused.status == 403
    assert NO_RIGHT in refused.message
    assert call(alice, "PATCH", f"{PLANS}/{MINE}", {"metadata": fields}, MERGE).allowed
    if "ownerReferences" in fields:
        eventually(lambda: call(cluster.admin, "GET", f"{PLANS}/{MINE}").status == 404, "it is collected")
    else:
        assert call(alice, "PATCH", f"{PLANS}/{MINE}", {"metadata": {"finalizers": None}}, MERGE).allowed


def test_a_plan_is_gone_however_it_is_deleted(cluster: RealCluster) -> None:
    """In the foreground the garbage collector takes its own finalizer off."""
    for how in ("Foreground", "Background", "Orphan"):
        deleted = call(cluster.person("alice"), "DELETE", f"{PLANS}/{MINE}", propagationPolicy=how)
        assert deleted.allowed, deleted.message
        eventually(lambda: call(cluster.admin, "GET", f"{PLANS}/{MINE}").status == 404, f"it is gone: {how}")
        apply.create(cluster.admin, PLANS, plan(MINE))


def test_no_way_around_the_right_on_the_node(cluster: RealCluster) -> None:
    """By whatever verb, patch type, manager or subresource."""
    alice, path = cluster.person("alice"), f"{PLANS}/{OTHERS}"
    live = apply.get(cluster.admin, path)
    changed = {**live, "spec": {**live["spec"], "paused": True}}
    force = {"fieldManager": names.CONTROLLER_MANAGER, "force": "true"}
    add = [{"op": "add", "path": "/spec/paused", "value": True}]
    attempts: list[tuple[str, str, Any, str, dict[str, str]]] = [
        ("PUT", path, changed, "application/json", {}),
        ("PATCH", path, add, JSON_PATCH, {}),
        ("PATCH", path, plan(OTHERS, paused=True), APPLY, force),
        ("PATCH", f"{PLANS}/people-new", plan("people-new"), APPLY, force),
        ("DELETE", path, None, "application/json", {}),
    ]
    for method, where, body, content_type, query in attempts:
        refused = call(alice, method, where, body, content_type, **query)
        assert refused.status == 403, (method, refused)
        assert "needs the right to patch that node" in refused.message
    # A node's name in the spec that is not the plan's is refused by the CRD, before or after.
    mixed = {**plan(OTHERS), "spec": {"nodeName": MINE, "paused": True}}
    assert call(alice, "PUT", path, {**mixed, "metadata": live["metadata"]}).status == 422
    deleted = call(alice, "DELETE", PLANS)
    assert deleted.status == 403, "object by object, and refused at the first of another's node"
    assert apply.get(cluster.admin, path)["spec"] == live["spec"]


def test_the_right_on_the_node_alone_is_not_enough(cluster: RealCluster) -> None:
    refused = call(cluster.person("carol"), "PATCH", f"{PLANS}/{MINE}", {"spec": {"paused": True}}, MERGE)
    assert refused.status == 403
    assert 'cannot patch resource "gpupartitionplans"' in refused.message


def test_no_person_writes_a_status(cluster: RealCluster) -> None:
    """Planning believes it: a forged one would have devices made that are not there, or none."""
    forged = {"status": {"gpus": [{"index": 0, "state": "Ready", "migMode": "Enabled"}]}}
    for method, body, content_type in (
        ("PATCH", forged, MERGE),
        ("PATCH", {**plan(MINE), **forged}, APPLY),
        ("PUT", {**apply.get(cluster.admin, f"{PLANS}/{MINE}"), **forged}, "application/json"),
    ):
        query = {"fieldManager": names.AGENT_MANAGER, "force": "true"} if content_type == APPLY else {}
        refused = call(cluster.admin, method, f"{PLANS}/{MINE}/status", body, content_type, **query)
        assert refused.status == 403, refused
        assert "the status of a plan is written by gpuplan's agents and controller alone" in refused.message
    agent = cluster.agent_of(MINE)
    assert call(agent, "PATCH", f"{PLANS}/{MINE}/status", forged, MERGE).allowed


def test_kubernetes_own_roles_read_and_write_plans_for_the_whole_cluster_alone(cluster: RealCluster) -> None:
    """In one namespace they give no right on plans, which have none."""
    try:
        for person, role in (("victor", "view"), ("edith", "edit")):
            cluster.kubectl(
                "create", "clusterrolebinding", f"e2e-{person}", f"--clusterrole={role}", f"--user={person}"
            )
            name = f"e2e-{person}-local"
            cluster.kubectl("create", "rolebinding", name, f"--clusterrole={role}", f"--user={person}-local")
        victor, edith = cluster.person("victor"), cluster.person("edith")
        eventually(lambda: call(victor, "GET", PLANS).allowed, "who views all namespaces reads plans")
        assert call(victor, "PATCH", f"{PLANS}/{MINE}", {"spec": {"paused": True}}, MERGE).status == 403
        eventually(lambda: call(edith, "GET", PLANS).allowed, "who edits all namespaces reads plans")
        refused = call(edith, "PATCH", f"{PLANS}/{MINE}", {"spec": {"paused": True}}, MERGE)
        assert f"who writes the plan of node {MINE} needs the right to patch that node" in refused.message
        for local in ("victor-local", "edith-local"):
            assert call(cluster.person(local), "GET", PLANS).status == 403
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "e2e-victor", "e2e-edith")
        cluster.kubectl("delete", "rolebinding", "e2e-victor-local", "e2e-edith-local")


@pytest.mark.parametrize("who", ["alice", "admin"])
def test_no_other_account_writes_planned(cluster: RealCluster, who: str) -> None:
    api = cluster.admin if who == "admin" else cluster.person(who)
    other_items = {"gpus": [WHOLE]}
    attempts = [
        ("PATCH", f"{PLANS}/{MINE}", {"spec": {"planned": other_items}}, MERGE, {}),
        ("PATCH", f"{PLANS}/{MINE}", {"spec": {"planned": {"gpus": []}}}, MERGE, {}),
        (
            "PATCH",
            f"{PLANS}/{MINE}",
            plan(MINE, planned=other_items),
            APPLY,
            {"fieldManager": "gpuplan-controller", "force": "true"},
        ),
        ("PUT", f"{PLANS}/{MINE}", _with_planned(cluster, other_items), "application/json", {}),
    ]
    for method, path, body, content_type, query in attempts:
        refused = call(api, method, path, body, content_type, **query)
        assert refused.status == 403, refused
        assert CONTROLLERS_ALONE in refused.message
    apply.delete(cluster.admin, f"{PLANS}/{MINE}")
    created = call(api, "POST", PLANS, plan(MINE, planned=other_items))
    assert created.status == 403
    assert CONTROLLERS_ALONE in created.message


def _with_planned(cluster: RealCluster, planned: dict[str, Any]) -> dict[str, Any]:
    found = apply.get(cluster.admin, f"{PLANS}/{MINE}")
    return {**found, "spec": {**found["spec"], "planned": planned}}


def test_replace_of_a_file_without_planned_and_of_one_that_was_exported(cluster: RealCluster) -> None:
    alice = cluster.person("alice")
    exported = apply.get(cluster.admin, f"{PLANS}/{MINE}")
    changed = {**exported, "spec": {**exported["spec"], "gpus": [WHOLE]}}
    assert call(alice, "PUT", f"{PLANS}/{MINE}", changed).allowed
    version = apply.get(cluster.admin, f"{PLANS}/{MINE}")["metadata"]["resourceVersion"]
    from_git = {**plan(MINE), "metadata": {"name": MINE, "resourceVersion": version}}
    assert call(alice, "PUT", f"{PLANS}/{MINE}", from_git).allowed

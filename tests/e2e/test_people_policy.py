"""Who may write which field of a plan: people their part of the spec, with the right on the node; nobody planned.

People are users with client certificates and RBAC of their own. What the controller may write is in
test_controller_policy.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from crds.v1alpha1 import names
from kube import apply
from tests.e2e.real_cluster import APPLY, CONTROLLER, MERGE, PLANS, RealCluster, call, eventually, plan

MINE, OTHERS = "people-mine", "people-others"
WHOLE = {"index": 0, "whole": {}}
CUT = {"index": 1, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}
NO_RIGHT = f"who writes the plan of node {OTHERS} needs the right to patch that node"
CONTROLLERS_ALONE = "spec.planned is written by the gpuplan controller; pin a GPU by listing it in spec.gpus"


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
    """Both plans anew, each with something planned by the controller."""
    for name in (MINE, OTHERS):
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
def test_people_write_their_fields_with_the_right_on_the_node(cluster: RealCluster, spec: dict[str, Any]) -> None:
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


def test_the_right_on_the_node_alone_is_not_enough(cluster: RealCluster) -> None:
    refused = call(cluster.person("carol"), "PATCH", f"{PLANS}/{MINE}", {"spec": {"paused": True}}, MERGE)
    assert refused.status == 403
    assert 'cannot patch resource "gpupartitionplans"' in refused.message


@pytest.mark.parametrize("who", ["alice", "admin"])
def test_nobody_else_writes_planned(cluster: RealCluster, who: str) -> None:
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

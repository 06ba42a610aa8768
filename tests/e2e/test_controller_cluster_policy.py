"""What the controller may write in addition to plans when RBAC grants it everything; see test_controller_policy.

Of a pod's status the nomination, of a Node the removal of a silent agent's taint, its own Lease and its Events.
"""

from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.builders.objects import lease
from tests.e2e.fleet import KEPT_TAINT
from tests.e2e.real_cluster import CONTROLLER, JSON_PATCH, LEASES, MERGE, NODES, RealCluster, call
from tests.e2e.test_controller_policy import CHANGING, NAME, POD, controller

__all__ = ["controller"]  # a fixture


def test_of_a_pods_status_the_nomination(cluster: RealCluster, controller: ApiClient) -> None:
    assert call(controller, "PATCH", f"{POD}/status", {"status": {"nominatedNodeName": NAME}}, MERGE).allowed
    assert call(controller, "PATCH", f"{POD}/status", {"status": {"nominatedNodeName": None}}, MERGE).allowed
    others: tuple[dict[str, Any], ...] = (
        {"phase": "Failed"},
        {"message": "x"},
        {"conditions": []},
        {"nominatedNodeName": NAME, "reason": "x"},
        {"startTime": "2026-01-01T00:00:00Z"},
        {"hostIP": "10.0.0.1"},
    )
    for status in others:
        refused = call(controller, "PATCH", f"{POD}/status", {"status": status}, MERGE)
        assert refused.status == 403, status
        assert "of a pod's status it may write nominatedNodeName only" in refused.message


def test_of_a_node_the_removal_of_our_taint(cluster: RealCluster, controller: ApiClient) -> None:
    path = f"{NODES}/{NAME}"
    sentence = "of a node it may remove the taint gpuplan.dev/changing only"
    add = [{"op": "add", "path": "/spec/taints/-", "value": CHANGING}]
    assert sentence in call(controller, "PATCH", path, add, JSON_PATCH).message
    apply.json_patch(cluster.admin, path, add)
    others: tuple[dict[str, Any], ...] = (
        {"unschedulable": True},
        {"taints": [CHANGING]},
        {"taints": []},
        {"providerID": "x"},
    )
    for spec in others:
        refused = call(controller, "PATCH", path, {"spec": spec}, MERGE)
        assert refused.status == 403, spec
        assert sentence in refused.message
    for label in ("true", None):  # its labels do not depend on the taint
        labels = {"metadata": {"labels": {names.LABEL_NODE_AGENT: label}}}
        assert call(controller, "PATCH", path, labels, MERGE).allowed
    taints = apply.get(cluster.admin, path)["spec"]["taints"]
    position = [taint["key"] for taint in taints].index(names.TAINT_CHANGING)
    off = [{"op": "remove", "path": f"/spec/taints/{position}"}]
    assert call(controller, "PATCH", path, off, JSON_PATCH).allowed
    assert KEPT_TAINT in apply.get(cluster.admin, path)["spec"]["taints"]


def test_its_own_lease_and_events(cluster: RealCluster, controller: ApiClient) -> None:
    for name in (names.agent_lease(NAME), "kube-scheduler"):
        refused = call(controller, "POST", LEASES, lease(name))
        assert refused.status == 403
        assert "may write its own Lease only" in refused.message
    assert call(controller, "POST", LEASES, lease(names.CONTROLLER_LEASE), dryRun="All").allowed
    event = {
        "metadata": {"name": "e2e-event"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Planned",
        "type": "Normal",
    }
    events = "/api/v1/namespaces/default/events"
    for component, allowed in ((CONTROLLER, True), ("default-scheduler", False)):
        answer = call(controller, "POST", events, {**event, "source": {"component": component}}, dryRun="All")
        assert answer.allowed is allowed, answer.message


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", POD, None),
        ("POST", f"{POD}/binding", {"metadata": {"name": "e2e-nominated"}, "target": {"kind": "Node", "name": NAME}}),
        ("POST", f"{POD}/eviction", {"metadata": {"name": "e2e-nominated"}}),
        ("PATCH", f"{NODES}/{NAME}/status", {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}),
        ("DELETE", f"{NODES}/{NAME}", None),
        ("POST", NODES, {"metadata": {"name": "e2e-new"}}),
        ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "e2e-new"}}),
        ("POST", f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/gpuplan-agent/token", {"spec": {}}),
        ("DELETE", f"{LEASES}/e2e-nothing-but-policy", None),
        ("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuplan-agent", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everything_else_is_refused(
    cluster: RealCluster, controller: ApiClient, method: str, path: str, body: Any
) -> None:
    if path.startswith(LEASES):
        call(cluster.admin, "POST", LEASES, {"metadata": {"name": path.rpartition("/")[2]}, "spec": {}})
    if path == "/api/v1/namespaces/default/pods":
        body = {**body, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    answer = call(controller, method, path, body, MERGE if method == "PATCH" else "application/json")
    assert answer.status == 403, answer
    assert "gpuplan controller: may " in answer.message  # "may not …", or "may … only"

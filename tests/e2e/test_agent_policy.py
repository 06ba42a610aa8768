"""What a node agent may write when RBAC grants it everything: the policies alone must hold.

Tokens are real, fetched by the kubelet's identity for the DaemonSet's pod on each node. Each line of the table is one
request of node a's agent; node b's agent tries the same with the names swapped, so "own" and "other" are both proved.
A stolen token is worth its own node and no more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from crds.v1alpha1 import names
from kube import apply
from tests.e2e import fleet
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
    eventually,
    plan,
)

CHANGING = {"key": names.TAINT_CHANGING, "effect": "NoSchedule"}
EVENTS = "/api/v1/namespaces/default/events"
ONLY_STATUS = "only the status of its plan, its Node, its Lease, its Events and its device plugin"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request; OWN and OTHER in path and body stand for the two nodes."""

    name: str
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    says: str = ""
    """Part of the refusal; empty: it is allowed."""
    query: Mapping[str, str] = field(default_factory=dict)


def status(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "status": fields}


def lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": "e2e"},
    }


def event(component: str = AGENT, instance: str = "OWN") -> dict[str, Any]:
    return {
        "metadata": {"name": "e2e-OWN"},
        "involvedObject": {"kind": names.KIND, "name": "OWN", "apiVersion": names.API_VERSION},
        "type": "Normal",
        "reason": "Changing",
        "message": "m",
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": instance,
    }


AS_AGENT = {"fieldManager": names.AGENT_MANAGER, "force": "true"}
OWN_NODE, OTHER_NODE = f"{NODES}/OWN", f"{NODES}/OTHER"
TAINTS = "/spec/taints"
CASES = [
    # plans
    Case(
        name="own plan's status",
        method="PATCH",
        path=f"{PLANS}/OWN/status",
        body=status("OWN", observedGeneration=1),
        content_type=APPLY,
        query=AS_AGENT,
    ),
    Case(
        name="own plan's status by merge patch",
        method="PATCH",
        path=f"{PLANS}/OWN/status",
        body={"status": {"observedGeneration": 2}},
        content_type=MERGE,
    ),
    Case(
        name="other plan's status",
        method="PATCH",
        path=f"{PLANS}/OTHER/status",
        body=status("OTHER", observedGeneration=1),
        content_type=APPLY,
        query=AS_AGENT,
        says="gpuplan agent of node OWN may not write gpupartitionplans/status OTHER",
    ),
    Case(
        name="own plan's spec",
        method="PATCH",
        path=f"{PLANS}/OWN",
        body={"spec": {"paused": True}},
        content_type=MERGE,
        says=f"may not update gpupartitionplans, {ONLY_STATUS}",
    ),
    Case(
        name="own plan's spec by apply",
        method="PATCH",
        path=f"{PLANS}/OWN",
        body=plan("OWN", paused=True),
        content_type=APPLY,
        query=AS_AGENT,
        says="may not update gpupartitionplans",
    ),
    Case(
        name="own plan's labels",
        method="PATCH",
        path=f"{PLANS}/OWN",
        body={"metadata": {"labels": {"a": "b"}}},
        content_type=MERGE,
        says="may not update gpupartitionplans",
    ),
    Case(
        name="create a plan",
        method="POST",
        path=PLANS,
        body=plan("e2e-new"),
        says="may not create gpupartitionplans",
    ),
    Case(
        name="create a plan by apply",
        method="PATCH",
        path=f"{PLANS}/e2e-new",
        body=plan("e2e-new"),
        content_type=APPLY,
        query=AS_AGENT,
        says="may not create gpupartitionplans",
    ),
    Case(name="delete own plan", method="DELETE", path=f"{PLANS}/OWN", says="may not delete gpupartitionplans"),
    Case(name="delete other plan", method="DELETE", path=f"{PLANS}/OTHER", says="may not delete gpupartitionplans"),
    Case(name="delete all plans", method="DELETE", path=PLANS, says="may not delete gpupartitionplans"),
    # its Lease
    Case(
        name="own Lease",
        method="PATCH",
        path=f"{LEASES}/{names.agent_lease('OWN')}",
        body=lease(names.agent_lease("OWN")),
        content_type=APPLY,
        query=AS_AGENT,
    ),
    Case(
        name="own Lease again",
        method="PATCH",
        path=f"{LEASES}/{names.agent_lease('OWN')}",
        body={"spec": {"holderIdentity": "again"}},
        content_type=MERGE,
    ),
    Case(
        name="other Lease",
        method="PATCH",
        path=f"{LEASES}/{names.agent_lease('OTHER')}",
        body=lease(names.agent_lease("OTHER")),
        content_type=APPLY,
        query=AS_AGENT,
        says=f"may not write lease {names.agent_lease('OTHER')}, only {names.agent_lease('OWN')} in gpuplan-system",
    ),
    Case(
        name="the controller's Lease",
        method="POST",
        path=LEASES,
        body=lease(names.CONTROLLER_LEASE),
        says="may not write lease gpuplan-controller",
    ),
    Case(
        name="a kubelet's Lease",
        method="POST",
        path="/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        body=lease("OWN"),
        says="may not write lease OWN",
    ),
    Case(
        name="own Lease in another namespace",
        method="POST",
        path="/apis/coordination.k8s.io/v1/namespaces/default/leases",
        body=lease(names.agent_lease("OWN")),
        says="may not write lease",
    ),
    Case(
        name="delete own Lease",
        method="DELETE",
        path=f"{LEASES}/{names.agent_lease('OWN')}",
        says="may not delete leases",
    ),
    # its Node: label and taint
    Case(
        name="own label",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"labels": {"nvidia.com/device-plugin.config": "mig-b"}}},
        content_type=STRATEGIC,
    ),
    Case(
        name="own label off",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"labels": {"nvidia.com/device-plugin.config": None}}},
        content_type=STRATEGIC,
    ),
    Case(
        name="another label",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"labels": {"zone": "q"}}},
        content_type=STRATEGIC,
        says="the only node label that it may change is nvidia.com/device-plugin.config",
    ),
    Case(
        name="another label off",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"labels": {"zone": None}}},
        content_type=STRATEGIC,
        says="the only node label",
    ),
    Case(
        name="the enabling label",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"labels": {names.LABEL_PARTITIONING: "mps"}}},
        content_type=STRATEGIC,
        says="the only node label",
    ),
    Case(
        name="other node's label",
        method="PATCH",
        path=OTHER_NODE,
        body={"metadata": {"labels": {"nvidia.com/device-plugin.config": "mig-b"}}},
        content_type=STRATEGIC,
        says="gpuplan agent of node OWN may not write nodes OTHER",
    ),
    Case(
        name="other node's taint",
        method="PATCH",
        path=OTHER_NODE,
        body={"spec": {"taints": [CHANGING]}},
        content_type=STRATEGIC,
        says="may not write nodes OTHER",
    ),
    Case(
        name="our taint on",
        method="PATCH",
        path=OWN_NODE,
        body=[{"op": "add", "path": f"{TAINTS}/-", "value": CHANGING}],
        content_type=JSON_PATCH,
    ),
    Case(
        name="our taint that evicts",
        method="PATCH",
        path=OWN_NODE,
        body=[{"op": "add", "path": f"{TAINTS}/-", "value": {"key": names.TAINT_CHANGING, "effect": "NoExecute"}}],
        content_type=JSON_PATCH,
        says="the taint gpuplan.dev/changing has the effect NoSchedule only",
    ),
    Case(
        name="a foreign taint on",
        method="PATCH",
        path=OWN_NODE,
        body=[{"op": "add", "path": f"{TAINTS}/-", "value": {"key": "x", "effect": "NoExecute"}}],
        content_type=JSON_PATCH,
        says="the only taint that it may change is gpuplan.dev/changing",
    ),
    Case(
        name="a foreign taint off",
        method="PATCH",
        path=OWN_NODE,
        body={"spec": {"taints": [CHANGING]}},
        content_type=MERGE,
        says="the only taint",
    ),
    Case(
        name="a foreign taint's effect",
        method="PATCH",
        path=OWN_NODE,
        body={"spec": {"taints": [{**KEPT_TAINT, "effect": "NoExecute"}]}},
        content_type=MERGE,
        says="the only taint",
    ),
    Case(
        name="cordon",
        method="PATCH",
        path=OWN_NODE,
        body={"spec": {"unschedulable": True}},
        content_type=STRATEGIC,
        says="the spec of a node is not its own",
    ),
    Case(
        name="provider id",
        method="PATCH",
        path=OWN_NODE,
        body={"spec": {"providerID": "x"}},
        content_type=STRATEGIC,
        says="the spec of a node is not its own",
    ),
    Case(
        name="annotation",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"annotations": {"a": "b"}}},
        content_type=STRATEGIC,
        says="annotations, finalizers and owners of a node are not its own",
    ),
    Case(
        name="finalizer",
        method="PATCH",
        path=OWN_NODE,
        body={"metadata": {"finalizers": ["example.dev/x"]}},
        content_type=STRATEGIC,
        says="annotations, finalizers and owners",
    ),
    Case(name="delete own node", method="DELETE", path=OWN_NODE, says="may not delete nodes"),
    Case(name="delete other node", method="DELETE", path=OTHER_NODE, says="may not delete nodes"),
    Case(
        name="create a node",
        method="POST",
        path=NODES,
        body={"metadata": {"name": "e2e-new"}},
        says="may not create nodes",
    ),
    # its Node's status: our resources
    Case(
        name="our resources",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={
            "status": {
                field: {
                    "nvidia.com/mig-1g.10gb": "2",
                    "nvidia.com/mig-1g.10gb.me": "1",
                    "nvidia.com/gpu": "1",
                    "nvidia.com/gpu-10gb": "3",
                    "nvidia.com/gpu.shared": "4",
                    "aliyun.com/gpu-mem": "5",
                }
                for field in ("capacity", "allocatable")
            }
        },
        content_type=MERGE,
    ),
    Case(
        name="our resources off",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"status": {"capacity": {"nvidia.com/gpu": None}, "allocatable": {"nvidia.com/gpu": "0"}}},
        content_type=MERGE,
    ),
    Case(
        name="CPU",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"status": {"allocatable": {"cpu": "99"}}},
        content_type=MERGE,
        says="the only amounts that it may change are those of GPU resources",
    ),
    Case(
        name="a resource of others",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"status": {"capacity": {"nvidia.com/gpufake": "9"}}},
        content_type=MERGE,
        says="the only amounts",
    ),
    Case(
        name="memory off",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"status": {"allocatable": {"memory": None}}},
        content_type=MERGE,
        says="the only amounts",
    ),
    Case(
        name="a condition",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        content_type=STRATEGIC,
        says="of a node's status it may change capacity and allocatable only",
    ),
    Case(
        name="an address",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"status": {"addresses": [{"type": "InternalIP", "address": "10.1.1.1"}]}},
        content_type=STRATEGIC,
        says="of a node's status",
    ),
    Case(
        name="a label through the status",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"metadata": {"labels": {"nvidia.com/device-plugin.config": "mig-b"}}},
        content_type=MERGE,
        says="the only node label",
    ),
    Case(
        name="an annotation through the status",
        method="PATCH",
        path=f"{OWN_NODE}/status",
        body={"metadata": {"annotations": {"a": "b"}}},
        content_type=MERGE,
        says="annotations, finalizers",
    ),
    Case(
        name="other node's status",
        method="PATCH",
        path=f"{OTHER_NODE}/status",
        body={"status": {"capacity": {"nvidia.com/gpu": "9"}}},
        content_type=MERGE,
        says="may not write nodes/status OTHER",
    ),
    # Events
    Case(name="own Event", method="POST", path=EVENTS, body=event(), query={"dryRun": "All"}),
    Case(
        name="an Event of the kubelet",
        method="POST",
        path=EVENTS,
        body=event(component="kubelet"),
        query={"dryRun": "All"},
        says="an Event must say who wrote it",
    ),
    Case(
        name="an Event of another node's agent",
        method="POST",
        path=EVENTS,
        body=event(instance="OTHER"),
        query={"dryRun": "All"},
        says="an Event must say who wrote it",
    ),
    Case(
        name="somebody's Event",
        method="PATCH",
        path=f"{EVENTS}/e2e-foreign",
        body={"source": {"component": AGENT}, "reportingInstance": "OWN", "message": "forged"},
        content_type=MERGE,
        says="an Event must say who wrote it",
    ),
    Case(name="delete an Event", method="DELETE", path=f"{EVENTS}/e2e-foreign", says="may not delete events"),
    # pods and what else RBAC could be wrong about
    Case(name="own plugin's pod", method="DELETE", path=f"{PODS}/OWN-PLUGIN", query={"dryRun": "All"}),
    Case(
        name="other node's plugin",
        method="DELETE",
        path=f"{PODS}/OTHER-PLUGIN",
        says="may not delete pod OTHER-PLUGIN, only the device plugin of its own node",
    ),
    Case(name="own pod", method="DELETE", path=f"{PODS}/OWN-AGENT", says="only the device plugin of its own node"),
    Case(
        name="a pod that looks like a plugin's",
        method="DELETE",
        path=f"{PODS}/e2e-OWN-lookalike",
        says="only the device plugin of its own node",
    ),
    Case(
        name="a user's pod",
        method="DELETE",
        path="/api/v1/namespaces/default/pods/e2e-OWN-user",
        says="only the device plugin of its own node",
    ),
    Case(
        name="a pod's status",
        method="PATCH",
        path="/api/v1/namespaces/default/pods/e2e-OWN-user/status",
        body={"status": {"phase": "Failed"}},
        content_type=MERGE,
        says="may not update pods/status",
    ),
    Case(
        name="bind a pod",
        method="POST",
        path="/api/v1/namespaces/default/pods/e2e-OWN-user/binding",
        body={"metadata": {"name": "e2e-OWN-user"}, "target": {"kind": "Node", "name": "OTHER"}},
        says="may not create pods/binding",
    ),
    Case(
        name="run a command in a pod",
        method="POST",
        path="/api/v1/namespaces/default/pods/e2e-OWN-user/exec",
        query={"command": "sh", "stdout": "true"},
        says="may not connect pods/exec",
    ),
    Case(
        name="evict a pod",
        method="POST",
        path="/api/v1/namespaces/default/pods/e2e-OWN-user/eviction",
        body={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "e2e-OWN-user"}},
        says="may not create pods/eviction",
    ),
    Case(
        name="a secret",
        method="POST",
        path="/api/v1/namespaces/gpuplan-system/secrets",
        body={"metadata": {"name": "e2e"}},
        says="may not create secrets",
    ),
    Case(
        name="a token of the controller",
        method="POST",
        path="/api/v1/namespaces/gpuplan-system/serviceaccounts/gpuplan-controller/token",
        body={"spec": {}},
        says="may not create serviceaccounts/token",
    ),
    Case(
        name="a policy",
        method="DELETE",
        path="/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuplan-agent",
        says="may not delete clusterroles",
    ),
]


@pytest.fixture(scope="module")
def nodes(cluster: RealCluster) -> Iterator[tuple[EnabledNode, EnabledNode]]:
    """Two enabled nodes with their plans, and an RBAC that grants the agents everything."""
    found = (fleet.enable(cluster, "agent-a"), fleet.enable(cluster, "agent-b"))
    for one in found:
        apply.create(cluster.admin, PLANS, plan(one.name))
        for namespace, name, labels in (
            # Not the whole label set of the DaemonSet, or its controller would adopt the pod.
            (names.NAMESPACE, f"e2e-{one.name}-lookalike", {"app.kubernetes.io/part-of": "gpuplan"}),
            ("default", f"e2e-{one.name}-user", {}),
        ):
            apply.create(cluster.admin, f"/api/v1/namespaces/{namespace}/pods", _pod(name, one.name, labels))
    apply.create(cluster.admin, EVENTS, {**event("kubelet", "x"), "metadata": {"name": "e2e-foreign"}})
    cluster.kubectl("create", "clusterrole", "e2e-wide", "--verb=*", "--resource=*.*", check=True)
    account = f"--serviceaccount={names.NAMESPACE}:{AGENT}"
    cluster.kubectl("create", "clusterrolebinding", "e2e-wide", "--clusterrole=e2e-wide", account, check=True)
    eventually(
        lambda: "may not create secrets" in _try(found[0], found[1], _case("a secret")).message, "wide RBAC in force"
    )
    yield found
    cluster.kubectl("delete", "clusterrolebinding,clusterrole", "e2e-wide", check=True)
    for one in found:
        apply.delete(cluster.admin, f"{PLANS}/{one.name}")
        apply.delete(cluster.admin, f"{NODES}/{one.name}")


def _pod(name: str, node_name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "nodeName": node_name,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "none"}],
        },
    }


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    if isinstance(value, str):
        for word, meant in words.items():
            value = value.replace(word, meant)
    return value


def _words(own: EnabledNode, other: EnabledNode) -> dict[str, str]:
    """Longer words first: OWN is part of OWN-PLUGIN."""
    return {
        "OWN-PLUGIN": own.plugin_pod["metadata"]["name"],
        "OTHER-PLUGIN": other.plugin_pod["metadata"]["name"],
        "OWN-AGENT": own.agent_pod["metadata"]["name"],
        "OWN": own.name,
        "OTHER": other.name,
    }


def _try(own: EnabledNode, other: EnabledNode, case: Case) -> Answer:
    words = _words(own, other)
    return call(
        own.agent,
        case.method,
        _filled(case.path, words),
        _filled(case.body, words),
        case.content_type,
        **dict(case.query),
    )


@pytest.mark.parametrize("swapped", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agent(nodes: tuple[EnabledNode, EnabledNode], case: Case, swapped: bool) -> None:
    own, other = (nodes[1], nodes[0]) if swapped else nodes
    answer = _try(own, other, case)
    if case.says:
        assert answer.status == 403, answer
        assert _filled(case.says, _words(own, other)) in answer.message
    else:
        assert answer.allowed, answer.message


def test_a_token_that_is_bound_to_no_pod_writes_nothing(
    cluster: RealCluster, nodes: tuple[EnabledNode, EnabledNode]
) -> None:
    api = cluster.bearer(cluster.token(AGENT))
    # A request that is invalid by itself is refused before the policies see it.
    apply.merge_patch(cluster.admin, f"{NODES}/{nodes[0].name}", {"spec": {"taints": [KEPT_TAINT]}})
    for case in CASES:
        words = _words(*nodes)
        answer = call(
            api,
            case.method,
            _filled(case.path, words),
            _filled(case.body, words),
            case.content_type,
            **dict(case.query),
        )
        assert answer.status == 403, (case.name, answer)
        assert "the token is not bound to a pod on a node" in answer.message, case.name


def test_a_kubelet_gets_tokens_for_its_own_pods_only(
    cluster: RealCluster, nodes: tuple[EnabledNode, EnabledNode]
) -> None:
    a, b = nodes
    path = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/{AGENT}/token"
    for pod in (b.agent_pod, None):
        spec: dict[str, Any] = {}
        if pod is not None:
            bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            spec = {"boundObjectRef": bound}
        assert call(cluster.kubelet(a.name), "POST", path, {"spec": spec}).status == 403


def test_a_token_dies_with_its_pod(cluster: RealCluster) -> None:
    one = fleet.enable(cluster, "agent-leaving")
    assert call(one.agent, "GET", f"{NODES}/{one.name}").allowed
    apply.delete(cluster.admin, f"{PODS}/{one.agent_pod['metadata']['name']}", grace_seconds=0)
    eventually(lambda: call(one.agent, "GET", f"{NODES}/{one.name}").status == 401, "the token is refused")
    apply.delete(cluster.admin, f"{NODES}/{one.name}")

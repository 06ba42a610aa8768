"""Which requests an agent may send to the API server, and which not: one line a request.

OWN and OTHER in path and body are the two nodes, OWN-PLUGIN and the like for pods on them. `says` is part of the
policy's refusal; a line without it is allowed when RBAC is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crds.v1alpha1 import names
from tests.builders import objects
from tests.e2e.fleet import EnabledNode
from tests.e2e.real_cluster import AGENT, APPLY, CONTROLLER, JSON_PATCH, LEASES, MERGE, PLANS, PODS, STRATEGIC

EVENTS = "/api/v1/namespaces/default/events"
USER = "/api/v1/namespaces/default/pods/e2e-OWN-user"
AS_AGENT = {"fieldManager": names.AGENT_MANAGER, "force": "true"}
DRY = {"dryRun": "All"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "nowhere", "uid": "00000000-0000-0000-0000-000000000000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request."""

    name: str
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    says: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


def post(name: str, path: str, body: Any, says: str = "", query: Mapping[str, str] | None = None) -> Case:
    return Case(name=name, method="POST", path=path, body=body, says=says, query=query or {})


def put(name: str, path: str, body: Any, says: str = "") -> Case:
    return Case(name=name, method="PUT", path=path, body=body, says=says)


def delete(name: str, path: str, says: str = "", query: Mapping[str, str] | None = None) -> Case:
    return Case(name=name, method="DELETE", path=path, says=says, query=query or {})


def merge(name: str, path: str, body: Any, says: str = "") -> Case:
    return Case(name=name, method="PATCH", path=path, body=body, content_type=MERGE, says=says)


def strategic(name: str, path: str, body: Any, says: str = "") -> Case:
    return Case(name=name, method="PATCH", path=path, body=body, content_type=STRATEGIC, says=says)


def json_patch(name: str, path: str, *operations: Mapping[str, Any], says: str = "") -> Case:
    return Case(
        name=name, method="PATCH", path=path, body=list(operations), content_type=JSON_PATCH, says=says, query=DRY
    )


def applied(name: str, path: str, body: Any, says: str = "", manager: str = names.AGENT_MANAGER) -> Case:
    """By server-side apply with force: which manager a client names is no matter of rights."""
    query = {**AS_AGENT, "fieldManager": manager}
    return Case(name=name, method="PATCH", path=path, body=body, content_type=APPLY, says=says, query=query)


def filled(value: Any, own: EnabledNode, other: EnabledNode) -> Any:
    """The request of this node's agent."""
    words = {  # longer ones first: OWN is part of OWN-PLUGIN
        "OWN-PLUGIN": own.plugin_pod["metadata"]["name"],
        "OTHER-PLUGIN": other.plugin_pod["metadata"]["name"],
        "OWN-AGENT": own.agent_pod["metadata"]["name"],
        "OWN": own.name,
        "OTHER": other.name,
    }
    return _filled(value, words)


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    if isinstance(value, str):
        for word, meant in words.items():
            value = value.replace(word, meant)
    return value


def a_plan(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, **fields}


def lease(name: str, **metadata: Any) -> dict[str, Any]:
    return objects.lease(name, {"holderIdentity": "e2e"}, **metadata)


def event(
    component: str = AGENT, instance: str = "OWN", kind: str = names.KIND, about: str = "OWN", **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "e2e-OWN", **metadata},
        "involvedObject": {"kind": kind, "name": about, **({"namespace": "default"} if kind == "Pod" else {})},
        "type": "Normal",
        "reason": "Changing",
        "message": "m",
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": instance,
    }


READ = {"status": {"observedGeneration": 1}}
LABELLED = {"metadata": {"labels": {"a": "b"}}}
ONLY_STATUS = "only the status of its plan, its Node, its Lease and its Events"
NOT_THE_PLAN = f"may not update gpupartitionplans, {ONLY_STATUS}"
PLAN_CASES = [
    applied("own plan's status", f"{PLANS}/OWN/status", a_plan("OWN", **READ)),
    merge("own plan's status by merge patch", f"{PLANS}/OWN/status", {"status": {"observedGeneration": 2}}),
    put("own plan's status by PUT, spec in it is ignored", f"{PLANS}/OWN/status", "PUT-STATUS"),
    applied(
        "other plan's status",
        f"{PLANS}/OTHER/status",
        a_plan("OTHER", **READ),
        "gpuplan agent of node OWN may not write gpupartitionplans/status OTHER",
    ),
    merge("other plan's status by merge patch", f"{PLANS}/OTHER/status", READ, "may not write gpupartitionplans"),
    merge("own plan's spec", f"{PLANS}/OWN", {"spec": {"mode": "Manual"}}, NOT_THE_PLAN),
    # Refused by two policies; the API server names which one answered first.
    applied("own planned", f"{PLANS}/OWN", a_plan("OWN", spec={"planned": {"gpus": []}}), "denied request", CONTROLLER),
    applied("own gpus", f"{PLANS}/OWN", a_plan("OWN", spec={"gpus": []}), NOT_THE_PLAN, "kubectl"),
    merge("own plan's label", f"{PLANS}/OWN", LABELLED, NOT_THE_PLAN),
    merge("own plan's finalizer", f"{PLANS}/OWN", {"metadata": {"finalizers": ["example.dev/x"]}}, NOT_THE_PLAN),
    merge("own plan's owner", f"{PLANS}/OWN", {"metadata": {"ownerReferences": [OWNER]}}, NOT_THE_PLAN),
    merge("other plan's spec", f"{PLANS}/OTHER", {"spec": {"mode": "Manual"}}, NOT_THE_PLAN),
    delete("delete own plan", f"{PLANS}/OWN", "may not delete gpupartitionplans"),
    delete("delete other plan", f"{PLANS}/OTHER", "may not delete gpupartitionplans"),
    delete("delete all plans", PLANS, "may not delete gpupartitionplans"),
    post("create a plan", PLANS, a_plan("e2e-new", spec={"nodeName": "e2e-new"}), "may not create gpupartitionplans"),
]
OWN_LEASE, OTHER_LEASE = names.agent_lease("OWN"), names.agent_lease("OTHER")
KUBELETS = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DEFAULT_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE_CASES = [
    applied("own Lease", f"{LEASES}/{OWN_LEASE}", lease(OWN_LEASE)),
    merge("own Lease again", f"{LEASES}/{OWN_LEASE}", {"spec": {"holderIdentity": "again"}}),
    merge(
        "own Lease's owner",
        f"{LEASES}/{OWN_LEASE}",
        {"metadata": {"ownerReferences": [OWNER]}},
        "have neither owners nor finalizers",
    ),
    merge(
        "own Lease's finalizer",
        f"{LEASES}/{OWN_LEASE}",
        {"metadata": {"finalizers": ["example.dev/x"]}},
        "have neither owners nor finalizers",
    ),
    applied(
        "other Lease",
        f"{LEASES}/{OTHER_LEASE}",
        lease(OTHER_LEASE),
        f"may not write lease {OTHER_LEASE}, only {OWN_LEASE} in gpuplan-system",
    ),
    merge(
        "other Lease's label", f"{LEASES}/{OTHER_LEASE}", {"metadata": {"labels": {"a": "b"}}}, "may not write lease"
    ),
    post("the controller's Lease", LEASES, lease(names.CONTROLLER_LEASE), "may not write lease gpuplan-controller"),
    post(
        "a Lease of any name",
        LEASES,
        {**lease(""), "metadata": {"generateName": OWN_LEASE}},
        f"may not write lease {OWN_LEASE}",
    ),
    post("a kubelet's Lease", KUBELETS, lease("OWN"), "may not write lease OWN"),
    post("own Lease in another namespace", DEFAULT_LEASES, lease(OWN_LEASE), "may not write lease"),
    delete("delete own Lease", f"{LEASES}/{OWN_LEASE}", "may not delete leases"),
    delete("delete all Leases", LEASES, "may not delete leases"),
]
WHO = "an Event must say who wrote it"
ABOUT = "its Events are about pods, its own Node and the plan of that node"
EVENT_CASES = [
    post("own Event", EVENTS, event(), query=DRY),
    post("own Event about a pod", EVENTS, event(kind="Pod", about="any"), query=DRY),
    post("own Event about its Node", EVENTS, event(kind="Node"), query=DRY),
    post("an Event about another's plan", EVENTS, event(about="OTHER"), ABOUT, DRY),
    post("an Event about another Node", EVENTS, event(kind="Node", about="OTHER"), ABOUT, DRY),
    post("an Event of the kubelet", EVENTS, event("kubelet"), WHO, DRY),
    post("an Event of another node's agent", EVENTS, event(instance="OTHER"), WHO, DRY),
    post(
        "an Event with a finalizer", EVENTS, event(finalizers=["example.dev/x"]), "neither owners nor finalizers", DRY
    ),
    post(
        "an Event in another namespace as another reporter",
        "/api/v1/namespaces/kube-system/events",
        {**event("kubelet", kind="Pod", about="p"), "involvedObject": {"kind": "Pod", "namespace": "kube-system"}},
        WHO,
        DRY,
    ),
    post(
        "an Event by the newer API",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        {
            **{"metadata": {"name": "e2e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reason": "r"},
            **{"reportingController": "x/y", "reportingInstance": "OWN", "type": "Normal"},
            "regarding": {"kind": names.KIND, "name": "OWN"},
        },
        "may not create events",
        DRY,
    ),
    merge(
        "another client's Event",
        f"{EVENTS}/e2e-foreign",
        {"source": {"component": AGENT}, "reportingInstance": "OWN", "message": "forged"},
        WHO,
    ),
    merge("another client's Event's label", f"{EVENTS}/e2e-foreign", LABELLED, WHO),
    delete("delete an Event", f"{EVENTS}/e2e-foreign", "may not delete events"),
    delete("delete all Events", EVENTS, "may not delete events"),
]
NO_POD = "may not delete pods,"
SYSTEM = f"/api/v1/namespaces/{names.NAMESPACE}"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
SHELL = {"command": "sh", "stdout": "true"}
BINDING = {"metadata": {"name": "e2e-OWN-user"}, "target": {"kind": "Node", "name": "OTHER"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "e2e-OWN-user"}}
REPLICAS = {"spec": {"replicas": 0}}
OTHER_CASES = [
    delete("own plugin's pod", f"{PODS}/OWN-PLUGIN", NO_POD, DRY),
    delete("other node's plugin", f"{PODS}/OTHER-PLUGIN", NO_POD, DRY),
    delete("own pod", f"{PODS}/OWN-AGENT", NO_POD),
    delete("a user's pod", USER, NO_POD),
    delete("all pods of its namespace", PODS, NO_POD, DRY),
    delete("all pods of others", "/api/v1/namespaces/default/pods", NO_POD, DRY),
    merge("a pod's label", USER, LABELLED, "may not update pods,"),
    merge("a pod's status", f"{USER}/status", {"status": {"phase": "Failed"}}, "may not update pods/status"),
    post("bind a pod", f"{USER}/binding", BINDING, "may not create pods/binding"),
    post("run a command in a pod", f"{USER}/exec", None, "may not connect pods/exec", SHELL),
    post("evict a pod", f"{USER}/eviction", EVICTION, "may not create pods/eviction"),
    post("a secret", f"{SYSTEM}/secrets", {"metadata": {"name": "e2e"}}, "may not create secrets"),
    post(
        "a token of the controller",
        f"{SYSTEM}/serviceaccounts/{CONTROLLER}/token",
        {"spec": {}},
        "may not create serviceaccounts/token",
    ),
    merge(
        "the controller's scale",
        f"/apis/apps/v1/namespaces/{names.NAMESPACE}/deployments/{CONTROLLER}/scale",
        REPLICAS,
        "may not update deployments/scale",
    ),
    delete("a role", f"{ROLES}/{AGENT}", "may not delete clusterroles"),
]

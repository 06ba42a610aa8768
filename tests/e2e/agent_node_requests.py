"""Which requests about Nodes an agent may send, and which not: two labels, one taint, the amounts of our resources.

The status of its Node is tried by every verb that can write it; see agent_requests for the notation.
"""

from typing import Any

from crds.v1alpha1 import names
from tests.e2e.agent_requests import OWNER, applied, delete, json_patch, merge, post, put, strategic
from tests.e2e.fleet import KEPT_TAINT
from tests.e2e.real_cluster import NODES

CHANGING = {"key": names.TAINT_CHANGING, "effect": "NoSchedule"}
OWN_NODE, OTHER_NODE = f"{NODES}/OWN", f"{NODES}/OTHER"
OWN_STATUS = f"{OWN_NODE}/status"
LABEL = names.LABEL_MPS_DAEMONS
ADD_TAINT = {"op": "add", "path": "/spec/taints/-"}
ONLY_LABEL = "the only node label that it may change is gpuplan.dev/mps-daemons"
ONLY_TAINT = "the only taint that it may change is gpuplan.dev/changing"
NOT_ITS_META = "annotations, finalizers and owners of a node are not its own"
NOT_ITS_SPEC = "the spec of a node is not its own"
NOT_ITS_NODE = "gpuplan agent of node OWN may not write nodes OTHER"
ONLY_GPUS = "the only amounts that it may change are those of GPU resources"


def labels(**found: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {key.replace("_", "."): value for key, value in found.items()}}}


def node(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "OWN"}, **fields}


NODE_CASES = [
    strategic("own label", OWN_NODE, {"metadata": {"labels": {LABEL: "true"}}}),
    strategic("own label off", OWN_NODE, {"metadata": {"labels": {LABEL: None}}}),
    strategic("a config", OWN_NODE, {"metadata": {"labels": {"nvidia.com/device-plugin.config": "a"}}}, ONLY_LABEL),
    strategic("another label", OWN_NODE, labels(zone="q"), ONLY_LABEL),
    strategic("another label off", OWN_NODE, labels(zone=None), ONLY_LABEL),
    applied("another label by apply", OWN_NODE, node(metadata={"name": "OWN", "labels": {"zone": "q"}}), ONLY_LABEL),
    strategic("the enabling label", OWN_NODE, {"metadata": {"labels": {names.LABEL_PARTITIONING: "mps"}}}, ONLY_LABEL),
    strategic("other node's label", OTHER_NODE, {"metadata": {"labels": {LABEL: "mig-b"}}}, NOT_ITS_NODE),
    json_patch("other node's taint", OTHER_NODE, {**ADD_TAINT, "value": CHANGING}, says=NOT_ITS_NODE),
    json_patch("our taint on", OWN_NODE, {**ADD_TAINT, "value": CHANGING}),
    json_patch(
        "our taint that evicts",
        OWN_NODE,
        {**ADD_TAINT, "value": {**CHANGING, "effect": "NoExecute"}},
        says="the taint gpuplan.dev/changing has the effect NoSchedule only",
    ),
    json_patch("a foreign taint on", OWN_NODE, {**ADD_TAINT, "value": {**CHANGING, "key": "x"}}, says=ONLY_TAINT),
    merge("a foreign taint off", OWN_NODE, {"spec": {"taints": [CHANGING]}}, ONLY_TAINT),
    merge(
        "a foreign taint's effect", OWN_NODE, {"spec": {"taints": [{**KEPT_TAINT, "effect": "NoExecute"}]}}, ONLY_TAINT
    ),
    strategic("cordon", OWN_NODE, {"spec": {"unschedulable": True}}, NOT_ITS_SPEC),
    strategic("provider id", OWN_NODE, {"spec": {"providerID": "x"}}, NOT_ITS_SPEC),
    strategic("annotation", OWN_NODE, {"metadata": {"annotations": {"a": "b"}}}, NOT_ITS_META),
    strategic("annotation off", OWN_NODE, {"metadata": {"annotations": {"kept": None}}}, NOT_ITS_META),
    strategic("finalizer", OWN_NODE, {"metadata": {"finalizers": ["example.dev/x"]}}, NOT_ITS_META),
    strategic("owner", OWN_NODE, {"metadata": {"ownerReferences": [OWNER]}}, NOT_ITS_META),
    put("cordon by PUT", OWN_NODE, "PUT-CORDON", NOT_ITS_SPEC),
    delete("delete own node", OWN_NODE, "may not delete nodes"),
    delete("delete other node", OTHER_NODE, "may not delete nodes"),
    delete("delete all nodes", NODES, "may not delete nodes"),
    post("create a node", NODES, {"metadata": {"name": "e2e-new"}}, "may not create nodes"),
    merge("a label through the status", OWN_STATUS, {"metadata": {"labels": {LABEL: "mig-b"}}}, ONLY_LABEL),
    merge("an annotation through the status", OWN_STATUS, {"metadata": {"annotations": {"a": "b"}}}, NOT_ITS_META),
    merge(
        "other node's status",
        f"{OTHER_NODE}/status",
        {"status": {"capacity": {"nvidia.com/gpu": "9"}}},
        "may not write nodes/status OTHER",
    ),
    strategic(
        "all amounts replaced",
        OWN_STATUS,
        {"status": {"allocatable": {"$patch": "replace", "nvidia.com/gpu": "1"}}},
        ONLY_GPUS,
    ),
]
OURS = ("mig-1g.10gb", "mig-1g.10gb.me", "mig-1g.24gb.me.all", "mig-1g.24gb-me", "gpu", "gpu-10gb", "gpu.shared")
OUR_RESOURCES = (*(f"nvidia.com/{name}" for name in OURS), "aliyun.com/gpu-mem")
FOREIGN_RESOURCES = (
    *("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.dev/nic"),
    *("nvidia.com/gpufake", "nvidia.com/mig-", "nvidia.com/mig-1c.2g.20gb", "nvidia.com/gpu-10gbx", "xnvidia.com/gpu"),
    *("aliyun.com/gpu-memory", "requests.nvidia.com/gpu"),
)
# What is written in addition to the amounts: field of the status, and its new value.
FOREIGN_FIELDS: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "False", "reason": "x", "message": ""}],
    "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}],
    "images": [{"names": ["x"], "sizeBytes": 1}],
    "phase": "Terminated",
    "volumesInUse": ["x"],
    "volumesAttached": [{"name": "x", "devicePath": "y"}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    "runtimeHandlers": [{"name": "x"}],
    "config": {"error": "x"},
    "nodeInfo": {
        **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "architecture"), "x"),
        **dict.fromkeys(("containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion", "operatingSystem"), "x"),
    },
}

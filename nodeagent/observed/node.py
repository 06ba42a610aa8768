"""Reads this node's own Node object: the counts that the scheduler uses, our taint, and what its labels request.

Takes raw Nodes, returns frozen readings. An absent resource, `0` and `n/0` are the same: the kubelet never removes the
key of a resource that it once had. Writes nothing; `taint` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from crds.v1alpha1 import gpu_operator
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.names import CLOSED, LABEL_DRIVER, LABEL_MPS_DAEMONS, LABEL_NODE_AGENT, TAINT_CHANGING
from kube.patches import has_taint
from kube.quantities import to_int
from partitioning.nvidia_plugin import CONFIG_LABEL
from partitioning.resources import classify

SHARING = ("gpu.product", "gpu.replicas", "gpu.sharing-strategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """What the agent must know of its Node."""

    name: str
    uid: str
    boot_id: str = ""
    version: str = ""
    """resourceVersion."""
    allocatable: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Of GPU resources only; a resource that is not in it counts 0."""
    taints: Sequence[Mapping[str, Any]] = ()
    """As they were read: their places count where one is removed."""
    changing: bool = False
    """Our taint is on the Node."""
    ours: bool = False
    """It is enabled, or the controller's label keeps the agent on it."""
    enablement_ended: bool = False
    """No label enables it, nor is there one that is not understood."""
    enablement_problem: str = ""
    """Why no label says how its GPUs are to be partitioned, where one tries to."""
    operator_parts: tuple[str, ...] = ()
    """Labels by which it runs parts here that must not run alongside gpuplan."""
    mps_daemons: bool = False
    """Our label that keeps the supervisor of MPS daemons is on the Node."""
    plugin_config: str = ""
    """The label that names the config of NVIDIA's device plugin."""
    discovered: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What NVIDIA's feature discovery says of sharing: its labels, without their prefix."""
    held_off: bool = False
    """A person works on the driver, and has said so by our label."""
    driver_unloads: str = ""
    """The label by which the operator announces that it unloads the driver."""
    container_runtime: str = ""
    """Name and version, as `containerd://2.2.9`."""
    kubelet_version: str = ""

    @property
    def closes_driver(self) -> str:
        """Why the agent keeps the driver closed; empty where it need not."""
        if self.held_off:
            return f"the node label {LABEL_DRIVER}={CLOSED} requests it"
        return f"the GPU Operator replaces the driver (node label {self.driver_unloads})" if self.driver_unloads else ""

    @property
    def generation(self) -> int:
        """Nodes have no useful one."""
        return 0

    @property
    def without_version(self) -> "ObservedNode":
        """To distinguish changes from heartbeats."""
        return replace(self, version="")


def parse_node(raw: Mapping[str, Any]) -> ObservedNode:
    """Read a Node of the API."""
    status = raw.get("status") or {}
    labels = raw["metadata"].get("labels") or {}
    info, amounts = status.get("nodeInfo") or {}, status.get("allocatable") or {}
    return ObservedNode(
        name=raw["metadata"]["name"],
        uid=raw["metadata"].get("uid", ""),
        boot_id=info.get("bootID", ""),
        version=raw["metadata"].get("resourceVersion", ""),
        allocatable={name: to_int(text) for name, text in sorted(amounts.items()) if classify(name) is not None},
        taints=(raw.get("spec") or {}).get("taints") or (),
        changing=has_taint(raw, TAINT_CHANGING),
        ours=enablement(labels).mode is not None or labels.get(LABEL_NODE_AGENT) == "true",
        enablement_ended=enablement(labels).ended,
        enablement_problem=enablement(labels).warning if enablement(labels).mode is None else "",
        held_off=labels.get(LABEL_DRIVER) == CLOSED,
        driver_unloads=gpu_operator.driver_unloads(labels),
        operator_parts=gpu_operator.switched_on(labels),
        mps_daemons=labels.get(LABEL_MPS_DAEMONS) == "true",
        plugin_config=labels.get(CONFIG_LABEL, ""),
        discovered={name: labels[f"nvidia.com/{name}"] for name in SHARING if f"nvidia.com/{name}" in labels},
        container_runtime=info.get("containerRuntimeVersion", ""),
        kubelet_version=info.get("kubeletVersion", ""),
    )

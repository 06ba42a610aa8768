"""Raw API objects for the controller's tests, all defaulted, and a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.api.nodes import read_node
from controller.api.plans import PlanReading, read_plan
from controller.api.pods import read_pod
from controller.model.views import NodeView, PodView
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import PlanSpec
from partitioning.models import known_models
from partitioning.resources import mig_resource, profile_of_resource

Json = dict[str, Any]
SLICE = "nvidia.com/mig-1g.10gb"
H100 = "NVIDIA H100 80GB HBM3"
_MODEL = next(model for model in known_models() if H100 in model.names)
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def uuid_of(index: int) -> str:
    return f"GPU-0000000{index}-0000-0000-0000-000000000000"


def pod(
    name: str = "p",
    *,
    requests: dict[str, str] | None = None,
    node: str = "",
    unschedulable: bool = True,
    nominated: str = "",
    phase: str = "Pending",
    uid: str = "",
    **spec: Any,
) -> Json:
    """A pod that requests one MIG slice and was refused by the scheduler, by default."""
    limits = {SLICE: "1"} if requests is None else requests
    conditions = [UNSCHEDULABLE] if unschedulable and not node else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": uid or f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {
            "phase": phase,
            "conditions": conditions,
            **({"nominatedNodeName": nominated} if nominated else {}),
        },
    }


def node(name: str = "n1", *, mode: str | None = "mig", uid: str = "", **allocatable: str) -> Json:
    """A node with H100s."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "1"}
    if mode is not None:
        labels["gpuplan.dev/gpu-partitioning"] = mode
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": resources, "capacity": resources},
    }


def item(index: int = 0, *starts: int, profile: str = "1g.10gb") -> Json:
    """An item of a plan with placed instances of one profile."""
    instances = [{"profile": profile, "start": start} for start in starts]
    return {"index": index, "uuid": uuid_of(index), "mig": {"instances": instances}}


def plan(
    name: str = "n1",
    *,
    version: int = 10,
    generation: int = 1,
    uid: str = "",
    spec: Json | None = None,
    planned: Iterable[Json] | None = None,
    status: Json | None = None,
) -> Json:
    """A plan; `planned` are the controller's items."""
    written: Json = {"nodeName": name, **(spec or {})}
    if planned is not None:
        written["planned"] = {"gpus": list(planned)}
    return {
        "apiVersion": "gpuplan.dev/v1alpha1",
        "kind": "GPUPartitionPlan",
        "metadata": {
            "name": name,
            "uid": uid or f"uid-plan-{name}",
            "resourceVersion": str(version),
            "generation": generation,
        },
        "spec": written,
        "status": status or {},
    }


def partition(start: int = 0, state: str = "Free", *, pod: str = "", resource: str = SLICE) -> Json:
    spec = _MODEL.profile(profile_of_resource(resource) or "")
    size = spec.size if spec is not None else 1
    found = {"resource": resource, "uuid": f"MIG-{start}", "start": start, "size": size, "state": state}
    return {**found, "pod": pod} if pod else found


def gpu(index: int = 0, *, state: str = "Ready", item: Json | None = None, partitions: Iterable[Json] = ()) -> Json:
    """A GPU of a status; `item` is the item that it confirms."""
    return {
        "index": index,
        "uuid": uuid_of(index),
        "model": H100,
        "state": state,
        "migMode": "Enabled",
        "partitions": list(partitions),
        **({"planHash": item_hash(item)} if item is not None else {}),
    }


def status(*gpus: Json, node_uid: str = "uid-n1", observed: int = 1, conditions: Iterable[Json] = ()) -> Json:
    return {
        "observedGeneration": observed,
        "node": {"uid": node_uid},
        "gpus": list(gpus),
        "conditions": list(conditions),
    }


def condition(kind: str, value: str, reason: str, generation: int = 1, since: str = "2026-01-01T00:00:00Z") -> Json:
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def confirmed(raw: Json, *, used: Iterable[int] = ()) -> Json:
    """The status that an agent writes when everything the plan lists is there; `used` are starts."""
    gpus = []
    for index, found in effective_items(PlanSpec.read(raw["spec"])).items():
        wire = found.wire()
        partitions = [
            partition(i["start"], "Used" if i["start"] in used else "Free", resource=mig_resource(i["profile"]))
            for i in wire.get("mig", {}).get("instances", [])
        ]
        gpus.append(gpu(index, item=wire, partitions=partitions))
    return status(*gpus, node_uid=f"uid-{raw['metadata']['name']}", observed=raw["metadata"]["generation"])


def pod_view(raw: Json) -> PodView:
    read = read_pod(raw)
    assert isinstance(read, PodView)
    return read


def node_view(raw: Json) -> NodeView:
    read = read_node(raw)
    assert isinstance(read, NodeView)
    return read


def plan_reading(raw: Json) -> PlanReading:
    read = read_plan(raw)
    assert isinstance(read, PlanReading)
    return read

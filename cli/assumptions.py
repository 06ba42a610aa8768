"""Assumes the status that a plan would have if its node's agent were running: for nodes without a report.

Takes a Node, its plan where there is one, and the pods that hold some of its GPUs; returns a status in the CRD's own
form, so that the controller reads it as any other. The GPUs are those of the node's labels, empty, or partitioned as
the plan describes. Where pods hold partitions and it is not known which ones, nothing is assumed: the reason is
returned instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.hardware import Gpu, Problem, gpus_of
from controller.api.plan_items import desired_of
from controller.model.views import Desired, MigDesired, MpsDesired, PodView
from crds.v1alpha1.names import LABEL_PRODUCT, GpuState, PartitionState
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import GpuItem, PlanSpec
from partitioning.layouts import Layout, check_layout
from partitioning.models import model_for_product
from partitioning.mps import MIB_PER_GIB, check_slices
from partitioning.packing import NoRoom, pack
from partitioning.resources import ACK_MEMORY, WHOLE, mig_resource

Raw = Mapping[str, Any]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nothing can be assumed of this node, and why."""

    reason: str


def hardware_of(node: Raw) -> tuple[Gpu, ...] | Unknown:
    """The GPUs that the labels of a node describe."""
    product = (node["metadata"].get("labels") or {}).get(LABEL_PRODUCT)
    if not product:
        return Unknown(reason=f"its label {LABEL_PRODUCT} is missing, so what GPUs it has is not known")
    if model_for_product(product) is None:
        return Unknown(reason=f"{LABEL_PRODUCT}={product} is an unknown model, and no agent has reported its profiles")
    gpus = gpus_of(node)
    return Unknown(reason=f"{gpus.field}: {gpus.message}") if isinstance(gpus, Problem) else gpus


def assumed_status(
    node: Raw, spec: Raw | None, holders: Sequence[PodView], gpus: Sequence[Gpu], *, mig_on: bool
) -> Json | Unknown:
    """The status of a node with these GPUs. `mig_on`: MIG mode of those that are not cut."""
    items = effective_items(PlanSpec.read(spec)) if spec else {}
    reports = [
        _gpu(index, gpu, items.get(index), mig_on=gpu.mig_enabled or (mig_on and gpu.model.mig_capable))
        for index, gpu in enumerate(gpus)
    ]
    partitions = [partition for report in reports for partition in report["partitions"]]
    unknown = _give(partitions, holders)
    if unknown is not None:
        return unknown
    return {
        "node": {"uid": node["metadata"]["uid"]},
        "models": [_model(gpu) for gpu in {gpu.name: gpu for gpu in gpus}.values()],
        "gpus": reports,
    }


def _model(gpu: Gpu) -> Json:
    major, minor = gpu.model.compute_capability
    return {"name": gpu.name, "memoryMiB": gpu.memory_mib, "computeCapability": f"{major}.{minor}"}


def _gpu(index: int, gpu: Gpu, item: GpuItem | None, *, mig_on: bool) -> Json:
    report: Json = {"index": index, "model": gpu.name, "state": GpuState.UNMANAGED.value, "partitions": []}
    if item is not None:
        desired = desired_of(item, model=gpu.model, memory_mib=gpu.memory_mib)
        mig_on = isinstance(desired, MigDesired)
        made = _made(index, gpu, desired)
        if isinstance(made, str):
            report.update(state=GpuState.FAILED.value, reason="InvalidLayout", message=made)
        else:
            report.update(state=GpuState.READY.value, planHash=item_hash(item), partitions=made)
    else:
        report["partitions"] = _instances(index, gpu.layout)
    off = "Disabled" if gpu.model.mig_capable else "NotSupported"
    return {**report, "migMode": "Enabled" if mig_on else off}


def _made(index: int, gpu: Gpu, desired: Desired) -> list[Json] | str:
    """The partitions that the agent would make, or why it could not."""
    if isinstance(desired, MigDesired):
        packed = pack(gpu.model, pinned=desired.layout, requested=dict(desired.counts), prefer=gpu.layout)
        if isinstance(packed, NoRoom):
            return packed.reason
        return check_layout(gpu.model, packed.layout) or _instances(index, packed.layout)
    if isinstance(desired, MpsDesired):
        problem = check_slices(gpu.memory_mib, gpu.model.compute_capability, desired.slices)
        return problem or [
            _partition(share.resource, f"{index}-{share.label}-{number}", memoryMiB=share.memory_mib)
            for number, share in enumerate(desired.slices)
        ]
    return [_partition(WHOLE, f"{index}")]


def _instances(index: int, layout: Layout) -> list[Json]:
    return [
        _partition(mig_resource(one.profile), f"{index}-{one.start}", start=one.start, size=one.size) for one in layout
    ]


def _partition(resource: str, number: str, **facts: int) -> Json:
    return {"resource": resource, "uuid": f"assumed-{number}", "state": PartitionState.FREE.value, **facts}


def _give(partitions: Iterable[Json], holders: Sequence[PodView]) -> Unknown | None:
    """Mark as used what pods hold, where there is no choice; other free ones of a held resource are left to planning.

    Planning knows that a bound pod holds one of them, and takes none of them away.
    """
    there = list(partitions)
    held: Counter[str] = Counter()
    for pod in holders:
        held.update(dict(pod.gpu))
    available: Counter[str] = Counter()
    for partition in there:
        available[partition["resource"]] += _units(partition)
    beyond = {resource: count for resource, count in sorted(held.items()) if count > available[resource]}
    if beyond:
        spelled = ", ".join(f"{count} x {resource}" for resource, count in beyond.items())
        return Unknown(
            reason=f"pods hold {spelled} of its GPUs, and it is not known where: no plan's status has the placements"
        )
    for resource, count in held.items():
        if count == available[resource] and resource != ACK_MEMORY:
            free = iter([partition for partition in there if partition["resource"] == resource])
            for pod in holders:
                for _ in range(dict(pod.gpu).get(resource, 0)):
                    next(free).update(state=PartitionState.USED.value, pod=pod.title)
    return None


def _units(partition: Raw) -> int:
    """How much of its resource a partition is to pods: that of ACK counts GiB."""
    return int(partition["memoryMiB"]) // MIB_PER_GIB if partition["resource"] == ACK_MEMORY else 1

"""Assumes the status that a plan would have if its node's agent were running: for nodes without a report.

Takes a Node, its plan where there is one, and the pods that hold some of its GPUs; returns a status in the CRD's own
form, so that the controller reads it as any other. The GPUs are those of the node's labels, empty, or partitioned as
the plan describes. Where pods hold partitions and it is not known which ones, nothing is assumed: the reason is
returned instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cli.hardware import MAX_GPUS, Gpu, gpus_of
from controller.api.plan_items import desired_of
from controller.model.demand import is_partition
from controller.model.views import Desired, GpuView, MigDesired, MpsDesired, PodView
from crds.v1alpha1 import names
from crds.v1alpha1.contents import unlimited
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.gpu_labels import counts_mig_devices, is_smaller_card
from crds.v1alpha1.names import GpuState, PartitionState
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import GpuItem, PlanSpec
from partitioning.layouts import Layout, check_layout
from partitioning.models import model_for_product, model_from_report
from partitioning.mps import MIB_PER_GIB, check_slices, slice_of_gb
from partitioning.packing import DoesNotFit, check_placements, instance_of, pack
from partitioning.resources import ACK_MEMORY, WHOLE, MigRequest, MpsRequest, classify, mig_resource

Raw = Mapping[str, Any]
Json = dict[str, Any]
_DIGITS = 10
"""No node offers a number of more digits."""


def hardware_of(node: Raw) -> tuple[Gpu, ...] | str:
    """The GPUs that the labels of a node describe, or why they are not known."""
    labels = node["metadata"].get("labels") or {}
    product = labels.get(names.LABEL_PRODUCT)
    if not product:
        return f"its label {names.LABEL_PRODUCT} is missing: write it and {names.LABEL_COUNT} into the file"
    if counts_mig_devices(labels):
        return f"{names.LABEL_PRODUCT}={product}: with MIG strategy single its labels count MIG devices, not its GPUs"
    model = model_for_product(product)
    unconfirmed = model is not None and not model.confirmed and enablement(labels).mode == "mig"
    if model is None or unconfirmed or is_smaller_card(labels, model.memory_mib):
        return _by_labels_alone(product, labels)
    return gpus_of(node)


def _by_labels_alone(product: str, labels: Mapping[str, str]) -> tuple[Gpu, ...] | str:
    """Slices and whole GPUs need no more than this; what MIG instances a model has is in no label."""
    count, memory = labels.get(names.LABEL_COUNT, "1"), labels.get(names.LABEL_MEMORY, "")
    version = [labels.get(name, "") for name in (names.LABEL_COMPUTE_MAJOR, names.LABEL_COMPUTE_MINOR)]
    for_mig = enablement(labels).mode == "mig" and labels.get(names.LABEL_MIG_CAPABLE) != "false"
    if not count.isdecimal() or not 1 <= int(count) <= MAX_GPUS:
        return f"{names.LABEL_COUNT}={count} is no number of GPUs from 1 to {MAX_GPUS}"
    if for_mig or not all(text.isdecimal() for text in (memory, *version)):
        unknown = f"{names.LABEL_PRODUCT}={product} is no model of known MIG placements, and no agent has reported them"
        return unknown if for_mig else f"{unknown}, nor do its labels of memory and compute say enough for slices"
    name = product.removesuffix("-SHARED").replace("-", " ")
    model = model_from_report(f"{name} ({memory} MiB)", int(memory), (), (int(version[0]), int(version[1])))
    gpu = Gpu(model=model, name=model.names[0], memory_mib=int(memory), mig_enabled=False, layout=Layout.of(()))
    return (gpu,) * int(count)


def assumed_status(
    node: Raw, spec: Raw | None, holders: Sequence[PodView], gpus: Sequence[Gpu], *, mig_on: bool
) -> Json | str:
    """The status of a node with these GPUs. `mig_on`: MIG mode of those that are not cut."""
    items = effective_items(PlanSpec.read(spec)) if spec else {}
    reports = [
        _gpu(index, gpu, items.get(index), mig_on=gpu.mig_enabled or (mig_on and gpu.model.mig_capable))
        for index, gpu in enumerate(gpus)
    ]
    if not items and not any(gpu.layout for gpu in gpus):
        for index, found in _served_by_others(node, holders, gpus).items():
            reports[index]["partitions"] = found
            if gpus[index].model.mig_capable:
                reports[index]["migMode"] = "Enabled" if "start" in found[0] else "Disabled"
    partitions = [partition for report in reports for partition in report["partitions"]]
    if unknown := _give(partitions, holders):
        return unknown
    return {
        "node": {"uid": node["metadata"]["uid"]},
        "models": [_model(gpu) for gpu in {gpu.name: gpu for gpu in gpus}.values()],
        "gpus": reports,
    }


def why_impossible(view: GpuView, item: GpuItem) -> str:
    """Why a GPU can never be what its item has; '' where it can, or where its placements are not known."""
    if view.model is None or not view.model.confirmed or view.desired is None:
        return ""
    placed = [one for one in (item.mig.instances if item.mig is not None else ()) if one.start is not None]
    exact = Layout.of(instance_of(view.model, one.profile, one.start or 0) for one in placed)
    if problem := check_placements(view.model, exact):
        return problem
    if item.mps is not None and (problem := unlimited(item.mps)):
        return problem
    name, memory_mib = view.model.names[0], view.model.memory_mib
    empty = Gpu(model=view.model, name=name, memory_mib=memory_mib, mig_enabled=True, layout=Layout.of(()))
    made = _made(view.index, empty, view.desired)
    return made if isinstance(made, str) else ""


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
        if isinstance(packed, DoesNotFit):
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


def _served_by_others(node: Raw, holders: Sequence[PodView], gpus: Sequence[Gpu]) -> dict[int, list[Json]]:
    """What another plugin has made of the GPUs, where pods hold some of it.

    The GPUs of a node are of one model, so it does not matter which of them are held whole. Where the others are cut,
    all alike and full, it does not matter which instances are held either. Otherwise it does, and it is not known.
    """
    held: Counter[str] = Counter()
    for pod in holders:
        held.update({name: count for name, count in pod.gpu if count})
    counts = {name: str(text) for name, text in ((node.get("status") or {}).get("allocatable") or {}).items()}
    offered = {name: int(text) for name, text in counts.items() if text.isdecimal() and len(text) < _DIGITS}
    if not held or (node["metadata"].get("labels") or {}).get(names.LABEL_PRODUCT, "").endswith("-SHARED"):
        return {}
    whole = held[WHOLE]
    made = {
        name: offered.get(name, 0)
        for name in sorted({*held, *offered})
        if is_partition(name) and offered.get(name, held[name])
    }
    found = {index: [_partition(WHOLE, f"{index}")] for index in range(min(whole, len(gpus)))}
    if not made:
        return found
    cut = range(max(whole, offered.get(WHOLE, 0)), len(gpus))
    if not cut or any(amount % len(cut) for amount in made.values()):
        return {}
    for index in cut:
        parts = _full(index, gpus[index], {name: amount // len(cut) for name, amount in made.items()})
        if parts is None:
            return {}
        found[index] = parts
    return found


def _full(index: int, gpu: Gpu, made: Mapping[str, int]) -> list[Json] | None:
    """These partitions, where they fill the GPU; None where they leave room, whose place is not known."""
    kinds = {name: classify(name) for name in made}
    profiles = {kind.profile: made[name] for name, kind in kinds.items() if isinstance(kind, MigRequest)}
    if len(profiles) == len(made):
        packed = pack(gpu.model, pinned=Layout.of(()), requested=profiles)
        if isinstance(packed, DoesNotFit) or any(
            not isinstance(pack(gpu.model, pinned=packed.layout, requested={spec.name: 1}), DoesNotFit)
            for spec in gpu.model.profiles
        ):
            return None
        return _instances(index, packed.layout)
    desired = MpsDesired(
        slices=tuple(
            share
            for name, kind in kinds.items()
            if isinstance(kind, MpsRequest)
            for share in (slice_of_gb(kind.memory_gb),) * made[name]
        )
    )
    made_of_it = _made(index, gpu, desired) if len(desired.slices) == sum(made.values()) else ""
    return None if isinstance(made_of_it, str) else made_of_it


def _give(partitions: Iterable[Json], holders: Sequence[PodView]) -> str:
    """Mark as used what pods hold, where there is no choice; other free ones of a held resource are left to planning.

    Planning knows that a bound pod holds one of them, and takes none of them away. A text says why that is not known.
    """
    there = list(partitions)
    held: Counter[str] = Counter()
    for pod in holders:
        held.update(dict(pod.gpu))
    available: Counter[str] = Counter()
    for partition in there:
        # How much of its resource it is to pods: that of ACK counts GiB.
        units = int(partition["memoryMiB"]) // MIB_PER_GIB if partition["resource"] == ACK_MEMORY else 1
        available[partition["resource"]] += units
    beyond = {resource: count for resource, count in sorted(held.items()) if count > available[resource]}
    if beyond:
        spelled = ", ".join(f"{count} x {resource}" for resource, count in beyond.items())
        return f"pods hold {spelled} of its GPUs, and it is not known where: no plan's status has the placements"
    for resource, count in held.items():
        if count == available[resource] and resource != ACK_MEMORY:
            free = iter([partition for partition in there if partition["resource"] == resource])
            for pod in holders:
                for _ in range(dict(pod.gpu).get(resource, 0)):
                    next(free).update(state=PartitionState.USED.value, pod=pod.title)
    return ""

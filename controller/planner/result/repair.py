"""Corrects `spec.planned` where that is due whether or not any pod is placed.

Takes the stock of one node, returns the items that its plan should hold before anything new is planned: items of pinned
indexes and of GPUs that are gone are dropped, those of cards that moved get their new index, and a partition in use
that an item lacks is put back, with the planned ones that overlap it dropped. A Manual or paused plan only loses pinned
items; a disabled node is left alone, and so is one whose plan was refused by the API server, until the write is tried
again. Never changes an item for a partition whose placement is not reported, as of a lost GPU: correcting twice is the
same as correcting once, whatever the status.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.model.equal_shares import is_same, refused_shares
from controller.model.views import Desired, Drain, GpuView, MigDesired, MpsDesired, PartitionView, PlannedGpu
from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock, mig_layout, slice_of
from controller.planner.result.slices import take, with_idle
from partitioning.layouts import Instance, instance_at, with_model_names
from partitioning.models import GpuModel
from partitioning.mps import MpsSlice, shareable_mib
from partitioning.placements import placement_of

_HANDS_OFF = (
    Ineligible.MANUAL,
    Ineligible.PAUSED,
    Ineligible.HELD_OFF,
    Ineligible.AGENT_SILENT,
    Ineligible.NOT_REPORTED,
)


def repaired(stock: NodeStock) -> dict[int, PlannedGpu]:
    """The items of the plan by index, corrected."""
    if stock.plan is None:
        return {}
    items = {item.index: item for item in stock.plan.planned}
    if stock.ineligible in (Ineligible.NOT_ENABLED, Ineligible.WRITE_REFUSED):
        return items
    hands_off = stock.ineligible in _HANDS_OFF
    if not hands_off:
        items = _with_present_indexes(items, stock.plan.gpus)
    for gpu in stock.plan.gpus:
        item = items.get(gpu.index)
        if item is None:
            continue
        other_card = bool(gpu.uuid) and item.uuid not in ("", gpu.uuid)
        if (other_card and not hands_off) or (gpu.pinned and not other_card):
            del items[gpu.index]
        elif not hands_off and not gpu.settled:  # a settled GPU agrees with its item
            items[gpu.index] = _with_held(item, gpu)
    for found in stock.gpus:
        _share(items, found)
    return items


def drained(stock: NodeStock, items: dict[int, PlannedGpu], drains: Mapping[int, Drain]) -> dict[int, PlannedGpu]:
    """The items with what this pass drains; those of a node that is left out stay as they are."""
    if stock.ineligible is not None:
        return items
    unlike = [item for index, item in items.items() if item.drain != drains.get(index)]
    return items | {item.index: replace(item, drain=drains.get(item.index)) for item in unlike}


def _with_present_indexes(items: dict[int, PlannedGpu], gpus: Iterable[GpuView]) -> dict[int, PlannedGpu]:
    """Of cards that moved. Agents follow the uuid; an earlier one needs both, and people read the index."""
    index_of = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid}
    there = {index_of[item.uuid]: item for item in items.values() if item.uuid in index_of}
    absent = {index: item for index, item in items.items() if item.uuid not in index_of}
    return absent | {index: replace(item, index=index) for index, item in there.items()}


def _share(items: dict[int, PlannedGpu], gpu: GpuStock) -> None:
    """Put the equal shares in, where nothing speaks against a change and no container holds anything of the GPU.

    Shares that its agent could not make follow a corrected label too, and go where none is requested any more.
    """
    index, shares = gpu.view.index, gpu.equal_shares
    refused = gpu.ineligible is Ineligible.FAILED and index in items and refused_shares(gpu.view)
    if gpu.retained or not (refused or gpu.ineligible is Ineligible.SHARED_EQUALLY):
        return
    if shares is None:
        del items[index]
    elif index not in items or not is_same(items[index].desired, shares):
        items[index] = PlannedGpu(index=index, uuid=gpu.view.uuid, desired=shares)


def _with_held(item: PlannedGpu, gpu: GpuView) -> PlannedGpu:
    held = [part for part in gpu.partitions if part.held]
    desired: Desired = item.desired
    if isinstance(desired, MigDesired):
        desired = _mig_with_held(desired, gpu.model, held)
    elif isinstance(desired, MpsDesired):
        desired = _mps_with_held(desired, gpu.model, held)
    return item if desired == item.desired else replace(item, uuid=gpu.uuid, desired=desired)


def _mig_with_held(desired: MigDesired, model: GpuModel | None, held: list[PartitionView]) -> MigDesired:
    if model is None:
        return desired
    layout, present = with_model_names(model, desired.layout), with_model_names(model, mig_layout(held))
    if any(instance_at(model, one.profile, one.start) != one for one in present):
        return desired  # an item cannot name an instance whose placement is not known
    counted = Counter(dict(desired.counts))
    missing = []
    for instance in present.without(layout):
        if counted[instance.profile]:
            counted[instance.profile] -= 1
        else:
            missing.append(instance)
    if not missing:
        return desired
    overlapping = [
        planned
        for planned in layout
        if planned not in present and any(_excludes(model, planned, instance) for instance in missing)
    ]
    return MigDesired(layout=layout.without(overlapping).union(missing), counts=desired.counts)


def _excludes(model: GpuModel, one: Instance, other: Instance) -> bool:
    return bool(placement_of(model, one).blockers & placement_of(model, other).taken)


def _mps_with_held(desired: MpsDesired, model: GpuModel | None, held: list[PartitionView]) -> MpsDesired:
    idle = list(desired.slices)
    kept: list[MpsSlice] = []
    missing = 0
    for part in held:
        match = take(idle, part.resource)
        added = None if match is not None else slice_of(part.resource)
        kept += [share for share in (match, added) if share is not None]
        missing += added is not None
    if not missing:
        return desired
    total_mib = shareable_mib(model.memory_mib) if model else sum(share.memory_mib for share in desired.slices)
    return MpsDesired(slices=with_idle(kept, idle, total_mib))

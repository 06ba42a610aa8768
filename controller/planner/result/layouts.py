"""Turns what is on the board into the items of `spec.planned`: placed layouts with as little change as possible.

Takes a node's stock, its corrected items and the devices that pods were placed on; returns the node's complete new
items and what they create and destroy. Counts per GPU are fixed by the board; where the instances go is decided again
here, so that idle partitions survive where they can. Never returns a layout without a used partition of the GPU.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from controller.model.demand import kind_of
from controller.model.results import NodeChange
from controller.model.views import Desired, MigDesired, MpsDesired, PartitionView, PlannedGpu, WholeDesired
from controller.planner.board.devices import Device, Share
from controller.planner.inventory.stock import GpuStock, NodeStock, slice_of
from controller.planner.result.slices import take, with_idle
from crds.v1alpha1.names import Partitioning
from partitioning.layouts import Instance, Layout
from partitioning.models import GpuModel
from partitioning.mps import MpsSlice, shareable_mib
from partitioning.packing import Packed, pack
from partitioning.placements import Placement
from partitioning.resources import WHOLE, MpsRequest

Spot = tuple[int, int, str]
"""Start, size and profile of an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """The change of one node, and its cost in partitions."""

    change: NodeChange
    created: int
    destroyed: int


def realise(stock: NodeStock, items: Mapping[int, PlannedGpu], devices: Sequence[Device]) -> Realised | None:
    """None where the plan stays as it is. `devices` are those that something new was placed on."""
    assert stock.plan is not None
    before = {item.index: item for item in stock.plan.planned}
    items = dict(items)
    created = destroyed = 0
    for device in devices:
        gpu = stock.gpus[device.gpu]
        desired, new, lost = _mig(gpu, device) if gpu.kind is Partitioning.MIG else _mps(gpu, device)
        created, destroyed = created + new, destroyed + lost
        items[gpu.view.index] = PlannedGpu(index=gpu.view.index, uuid=gpu.view.uuid, desired=desired)
    changed = [index for index in sorted(before.keys() | items.keys()) if before.get(index) != items.get(index)]
    if not changed:
        return None
    complete = tuple(items[index] for index in sorted(items))
    change = NodeChange(node=stock.node.name, gpus=complete, changed=tuple(changed))
    return Realised(change=change, created=created, destroyed=destroyed)


def _mig(gpu: GpuStock, device: Device) -> tuple[Desired, int, int]:
    assert gpu.model is not None
    placed = tuple([(part.what.instance, part.ready) for part in device.parts if isinstance(part.what, Placement)])
    return _mig_layout(gpu.model, _spots(gpu.retained), _spots(gpu.idle), placed, gpu.failed)


def _spots(parts: Sequence[PartitionView]) -> tuple[Spot, ...]:
    return tuple([(part.start, part.size, part.profile) for part in parts if part.profile])


@lru_cache(maxsize=65536)
def _mig_layout(
    model: GpuModel,
    retained: tuple[Spot, ...],
    idle: tuple[Spot, ...],
    placed: tuple[tuple[Instance, bool], ...],
    failed: Layout,
) -> tuple[Desired, int, int]:
    """Thousands of changed GPUs are alike in all this."""
    observed = _layout((*retained, *idle))
    # Pods that take an idle instance as it is may be bound at any moment.
    pinned = _layout(retained).union(instance for instance, ready in placed if ready)
    new = [instance for instance, ready in placed if not ready]
    counts = Counter(instance.profile for instance in new)
    packed = pack(model, pinned=pinned.union(failed), requested=counts, prefer=observed.without(pinned))
    # The board's own placements are possible, so there is a packing; an odd name in the status must not stop us.
    layout = packed.with_spare.without(failed) if isinstance(packed, Packed) else pinned.union(new)
    kept = sum(instance in layout for instance in observed)
    return MigDesired(layout=layout), len(layout) - kept, len(observed) - kept


def _layout(spots: Iterable[Spot]) -> Layout:
    return Layout.of(Instance(start=start, size=size, profile=profile) for start, size, profile in spots)


def _mps(gpu: GpuStock, device: Device) -> tuple[Desired, int, int]:
    assert gpu.model is not None
    if any(isinstance(part.what, Share) and part.what.resource == WHOLE for part in device.parts):
        return WholeDesired(), 1, sum(part.resource != WHOLE for part in gpu.idle)
    present = list(gpu.view.desired.slices) if isinstance(gpu.view.desired, MpsDesired) else []
    slices = [take(present, part.resource) or _new_slice(part.resource) for part in gpu.retained]
    idle = [
        take(present, part.resource) or _new_slice(part.resource)
        for part in gpu.idle
        if isinstance(kind_of(part.resource), MpsRequest)
    ]
    created = 0
    taken = [(part.what.resource, part.ready) for part in device.parts if isinstance(part.what, Share)]
    for resource, _ in sorted(taken, key=lambda each: (not each[1], each[0])):
        match = take(idle, resource)
        created += match is None
        slices.append(match or _new_slice(resource))
    complete = with_idle(slices, idle, shareable_mib(gpu.model.memory_mib))
    return MpsDesired(slices=complete), created, len(slices) + len(idle) - len(complete)


def _new_slice(resource: str) -> MpsSlice:
    share = slice_of(resource)
    assert share is not None
    return share

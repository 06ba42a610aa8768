"""Whose release would make room: what stands in the way of partitions on GPUs that may be cut.

In go the GPUs that could hold them, out comes Fragmented (enough is free, but not in one piece), WaitsForRelease (what
running pods hold would do), or nothing: then only pods of this very plan are in the way. Only the hardest resource of
an ask is looked at; it is the one that has fewest places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.planner.devices import Device
from controller.planner.inventory import Cut, GpuStock, NodeStock, mig_layout, mps_mib, slice_mib
from controller.planner.pools import MigPool, MpsPool
from controller.reasons import UnplacedReason
from controller.views import PartitionView
from partitioning.placements import occupancy

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One open GPU that offers the resource."""

    stock: NodeStock
    gpu: GpuStock
    device: Device

    @property
    def title(self) -> str:
        return f"GPU {self.gpu.view.index} of {self.stock.node.name}"


def blocking(candidates: Sequence[Candidate], resource: str) -> tuple[UnplacedReason, str] | None:
    held = [one for one in candidates if one.gpu.staying]
    split = [one for one in held if _free(one) >= _size(one, resource) and not _fits(one, one.device.base, resource)]
    if split:
        return UnplacedReason.FRAGMENTED, _fragmented(min(split, key=_fewest_holders), resource)
    holding = [one for one in held if _fits(one, _placed_alone(one), resource)]
    if holding:
        nearest = min(holding, key=_fewest_holders)
        return UnplacedReason.WAITS_FOR_RELEASE, (
            f"{resource} is free on {nearest.title} once it is released by {_holders(nearest.gpu.staying)} "
            f"({len(holding)} such GPUs): wait, or add a node"
        )
    return None


def _fragmented(one: Candidate, resource: str) -> str:
    opening = [part for part in one.gpu.staying if _fits(one, _state_without(one, part), resource)]
    opener = f"any of them: {_holders(opening)}" if opening else f"all of them: {_holders(one.gpu.staying)}"
    unit = "memory slices" if isinstance(one.device.pool, MigPool) else "MiB"
    return (
        f"{resource} needs {_size(one, resource)} {unit} in one piece; {one.title} has {_free(one)} free, but split by "
        f"{_spelled(one.gpu.staying)}: it waits for the release of {opener}"
    )


def _fits(one: Candidate, state: int, resource: str) -> bool:
    return one.device.pool.fit(state, resource) is not None


def _placed_alone(one: Candidate) -> int:
    """The state with what this pass placed, if everything else were released."""
    device = one.device
    if isinstance(device.pool, MigPool):
        return device.state & ~device.base
    assert one.gpu.model is not None
    taken_mib = MpsPool.free_mib(device.base) - MpsPool.free_mib(device.state)
    return MpsPool.state_of(one.gpu.model.memory_mib - taken_mib, len(device.parts))


def _state_without(one: Candidate, released: PartitionView) -> int:
    parts = [part for part in one.gpu.staying if part is not released]
    assert one.gpu.model is not None
    if one.gpu.cut is Cut.MIG:
        return occupancy(one.gpu.model, mig_layout(parts))
    return MpsPool.state_of(one.gpu.model.memory_mib - mps_mib(parts), len(parts))


def _free(one: Candidate) -> int:
    pool = one.device.pool
    if isinstance(pool, MigPool):
        return pool.free_slots(one.device.base)
    return MpsPool.free_mib(one.device.base)


def _size(one: Candidate, resource: str) -> int:
    pool = one.device.pool
    if isinstance(pool, MigPool):
        spec = pool.model.profile(pool.profiles[resource])
        return spec.size if spec is not None else 0
    return slice_mib(resource)


def _fewest_holders(one: Candidate) -> tuple[int, str, int]:
    return (len(one.gpu.staying), one.stock.node.name, one.gpu.view.index)


def _holders(parts: Iterable[PartitionView]) -> str:
    names = sorted({part.pod or "a pod that the status does not name" for part in parts})
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _spelled(parts: Iterable[PartitionView]) -> str:
    return ", ".join(
        f"{part.profile or part.resource}" + (f" at {part.start}" if part.profile else "") for part in parts
    )

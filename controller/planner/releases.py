"""Whose release would make room: what stands in the way of partitions on GPUs that may be cut.

In go the GPUs that could hold them, out comes Fragmented (there would be room if what is in use stood elsewhere on the
GPU), WaitsForRelease (what running pods hold would do), or nothing: then only pods of this very plan are in the way.
Only the hardest resource of an ask is looked at; it is the one that has fewest places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from controller.planner.devices import Device
from controller.planner.inventory import NO_INSTANCES, Cut, GpuStock, NodeStock, mig_layout, mps_mib, slice_mib
from controller.planner.pools import MigPool, MpsPool
from controller.planner.wording import counted, listed
from controller.reasons import UnplacedReason
from controller.views import PartitionView
from partitioning.models import GpuModel, ProfileSpec
from partitioning.mps import MAX_CLIENTS
from partitioning.packing import NoRoom, pack
from partitioning.placements import occupancy


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
    split = [one for one in held if _is_split(one, resource)]
    if split:
        return UnplacedReason.FRAGMENTED, _fragmented(min(split, key=_fewest_holders), resource)
    holding = [one for one in held if _fits(one, _placed_alone(one), resource)]
    if holding:
        nearest = min(holding, key=_fewest_holders)
        return UnplacedReason.WAITS_FOR_RELEASE, (
            f"{resource} waits for room on {nearest.title}: {_limit(nearest, resource)}; there is room once "
            f"{_released(nearest, resource)} ({counted(len(holding), 'such GPU')}): wait, or add a node"
        )
    return None


def _is_split(one: Candidate, resource: str) -> bool:
    """Whether it would fit beside what is in use if that stood elsewhere on the GPU: memory of MPS has no places."""
    pool = one.device.pool
    if not isinstance(pool, MigPool) or _free(one) < _size(one, resource) or _fits(one, one.device.base, resource):
        return False
    profiles = [part.profile for part in one.gpu.staying]
    return _fit_on_empty(pool.model, tuple(sorted([*profiles, pool.profiles[resource]])))


@lru_cache(maxsize=65536)
def _fit_on_empty(model: GpuModel, profiles: tuple[str, ...]) -> bool:
    wanted = {name: profiles.count(name) for name in profiles}
    return not isinstance(pack(model, pinned=NO_INSTANCES, wanted=wanted), NoRoom)


def _fragmented(one: Candidate, resource: str) -> str:
    return (
        f"{resource} needs {counted(_size(one, resource), 'memory slice')} in one piece; {one.title} has {_free(one)} "
        f"free, but split by {_spelled(one.gpu.staying)}: there is room once {_released(one, resource)}; "
        "wait, or add a node"
    )


def _released(one: Candidate, resource: str) -> str:
    """Who must release something for that; beside what this pass has placed there."""
    staying = one.gpu.staying
    opening = [part for part in staying if _fits(one, _state_without(one, part), resource)]
    names = _holders(opening or staying)
    if opening and len(names) == 1:
        which = _spelled(opening) if len(opening) == 1 else f"one of {listed([_spelled([part]) for part in opening])}"
        return f"{names[0]} releases {which}"
    if opening:
        return f"one of {listed(names)} releases what it holds there"
    several = "both" if len(staying) == 2 else "several"
    if len(names) == 1:
        return f"{names[0]} releases {several} of its partitions there"
    return f"{listed(names)} release {several} of their partitions there"


def _limit(one: Candidate, resource: str) -> str:
    """What of the GPU is used up; asked where no re-arrangement would help."""
    if _fits(one, one.device.base, resource):
        return "what is free goes to pods that are served before it"
    pool = one.device.pool
    if isinstance(pool, MigPool):
        spec = pool.model.profile(pool.profiles[resource])
        assert spec is not None
        return _mig_limit(pool.model, spec, one.gpu.staying, _free(one))
    if not MpsPool.clients(one.device.base):
        return f"it serves {MAX_CLIENTS} MPS clients and has as many"
    return f"{_free(one)} MiB of its memory are free, and the slice needs {_size(one, resource)} MiB"


def _mig_limit(model: GpuModel, spec: ProfileSpec, staying: Iterable[PartitionView], free: int) -> str:
    others = [found for part in staying if (found := model.profile(part.profile)) is not None]
    rival = next((other for other in others if model.excludes(spec.name, other.name)), None)
    if rival is not None and "+me" in spec.name and "+me" in rival.name:
        return "it can hold one +me instance"
    if rival is not None:
        return f"{spec.name} and {rival.name} never stand on one GPU"
    compute_free = model.compute_slices - sum(other.compute_slices for other in others)
    if compute_free < spec.compute_slices:
        return _used_up("compute slice", compute_free, model.compute_slices, spec.compute_slices)
    if free < spec.size:
        return _used_up("memory slice", free, model.slots, spec.size)
    return "what is in use there leaves no place for it"


def _used_up(noun: str, free: int, total: int, needed: int) -> str:
    if free <= 0:
        return f"its {counted(total, noun)} are used"
    return f"{free} of its {counted(total, noun)} {'is' if free == 1 else 'are'} free, and the instance needs {needed}"


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
    """With what this pass placed as well."""
    parts = [part for part in one.gpu.staying if part is not released]
    model, device = one.gpu.model, one.device
    assert model is not None
    if one.gpu.cut is Cut.MIG:
        return occupancy(model, mig_layout(parts)) | device.state & ~device.base
    taken_mib = MpsPool.free_mib(device.base) - MpsPool.free_mib(device.state)
    return MpsPool.state_of(model.memory_mib - taken_mib - mps_mib(parts), len(parts) + len(device.parts))


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


def _holders(parts: Iterable[PartitionView]) -> list[str]:
    return sorted({part.pod or "a pod that the status does not name" for part in parts})


def _spelled(parts: Iterable[PartitionView]) -> str:
    return ", ".join(
        f"{part.profile or part.resource}" + (f" at {part.start}" if part.profile else "") for part in parts
    )

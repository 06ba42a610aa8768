"""Names the blockers: which release would let a pod's partitions fit on GPUs that may be changed.

Takes the GPUs that could hold them. Returns Fragmented (enough is free, but not contiguously), WaitsForRelease (what
running pods hold would do), or nothing: then only pods of this very plan are in the way. The message has how much is
needed, the detail names the nearest GPU, the partitions and their holders. Only the hardest resource of a request is
considered; it is the one that has fewest places. Never looks at CPU and memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from controller.explanation.phrases import UNNAMED_POD, Answer, counted, joined, listed, short_resource
from controller.model.reasons import UnplacedReason
from controller.model.views import PartitionView
from controller.planner.board.devices import Device
from controller.planner.board.pools import MigPool, MpsPool
from controller.planner.inventory.stock import NO_INSTANCES, GpuStock, NodeStock, mig_layout, mps_mib, slice_mib
from crds.v1alpha1.names import Partitioning
from partitioning.models import GpuModel, ProfileSpec
from partitioning.mps import MAX_CLIENTS, shareable_mib
from partitioning.packing import DoesNotFit, pack
from partitioning.placements import occupancy


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One eligible GPU that could hold the resource."""

    stock: NodeStock
    gpu: GpuStock
    device: Device

    @property
    def title(self) -> str:
        return f"GPU {self.gpu.view.index} on node {self.stock.node.name}"


def blocking(candidates: Sequence[Candidate], resource: str) -> Answer | None:
    held = [one for one in candidates if one.gpu.retained]
    split = [one for one in held if _is_split(one, resource)]
    if split:
        return _fragmented(min(split, key=_fewest_holders), resource)
    holding = [one for one in held if _fits(one, _placed_alone(one), resource)]
    if not holding:
        return None
    nearest = min(holding, key=_fewest_holders)
    gpus = "the only suitable GPU is" if len(candidates) == 1 else f"all {len(candidates)} suitable GPUs are"
    size = _slices(nearest, resource)
    needs = f"; it needs {size} adjacent memory slices on one GPU" if size > 1 else ""
    return Answer(
        UnplacedReason.WAITS_FOR_RELEASE,
        f"No free {resource}: {gpus} in use{needs}. The pod starts when enough is released; or add a GPU node.",
        f"Nearest is {nearest.title}: {_limit(nearest, resource)}. {_released(nearest, resource)}",
    )


def _is_split(one: Candidate, resource: str) -> bool:
    """Whether it would fit if what is in use were placed elsewhere on the GPU: memory of MPS has no places."""
    pool = one.device.pool
    if not isinstance(pool, MigPool) or _free(one) < _size(one, resource) or _fits(one, one.device.base, resource):
        return False
    profiles = [part.profile for part in one.gpu.retained]
    return _fit_on_empty(pool.model, tuple(sorted([*profiles, pool.profiles[resource]])))


@lru_cache(maxsize=65536)
def _fit_on_empty(model: GpuModel, profiles: tuple[str, ...]) -> bool:
    counts = {name: profiles.count(name) for name in profiles}
    return not isinstance(pack(model, pinned=NO_INSTANCES, requested=counts), DoesNotFit)


def _fragmented(one: Candidate, resource: str) -> Answer:
    size = _slices(one, resource)
    what = f"but not contiguously on one GPU: it needs {size} adjacent memory slices."
    if _has_run(one, size):
        what = f"but not where it may start: at memory slice {_starts(one, resource)}."
    return Answer(
        UnplacedReason.FRAGMENTED,
        f"Enough GPU memory is free for {resource}, {what} The pod starts when enough is released; or add a GPU node.",
        f"Nearest is {one.title}: {counted(_free(one), 'memory slice')} of it {'is' if _free(one) == 1 else 'are'} "
        f"free, split by {listed([_spelled(part) for part in one.gpu.retained])}. {_released(one, resource)}",
    )


def _has_run(one: Candidate, size: int) -> bool:
    """Whether so many adjacent slices are free, wherever they begin."""
    slots = one.gpu.model.slots if one.gpu.model is not None else 0
    taken = {at for part in one.gpu.retained for at in range(part.start, part.start + part.size)}
    return any(not taken.intersection(range(at, at + size)) for at in range(slots - size + 1))


def _starts(one: Candidate, resource: str) -> str:
    pool = one.device.pool
    spec = pool.model.profile(pool.profiles[resource]) if isinstance(pool, MigPool) else None
    return joined([str(start) for start in spec.starts] if spec is not None else [], "or")


def _released(one: Candidate, resource: str) -> str:
    """What must be released for that, as long as what this pass has placed there stays."""
    setup = [part for part in one.gpu.retained if _fits(one, _state_without(one, (part,)), resource)]
    if setup:
        which = _spelled(setup[0]) if len(setup) == 1 else f"one of {listed([_spelled(part) for part in setup])}"
        return f"It has room once {which} is released."
    several = _fewest_to_release(one, resource)
    return f"It has room once {len(several)} partitions are released: {listed([_spelled(part) for part in several])}."


def _fewest_to_release(one: Candidate, resource: str) -> tuple[PartitionView, ...]:
    """The fewest adjacent instances, or the largest MPS slices, without which it fits; all, where no choice will do."""
    retained, pool = one.gpu.retained, one.device.pool
    if isinstance(pool, MigPool):
        spec = pool.model.profile(pool.profiles[resource])
        starts = spec.starts if spec is not None else ()
        size = _slices(one, resource)
        choices = [
            tuple(part for part in retained if part.start < start + size and start < part.start + part.size)
            for start in starts
        ]
    else:
        largest_first = sorted(retained, key=lambda part: (-mps_mib((part,)), part.id))
        choices = [tuple(largest_first[:count]) for count in range(1, len(retained))]
    enough = [parts for parts in choices if _fits(one, _state_without(one, parts), resource)]
    return min(enough, key=len, default=retained)


def _limit(one: Candidate, resource: str) -> str:
    """What of the GPU is used up, where no rearrangement would help."""
    if _fits(one, one.device.base, resource):
        return "what is free is reserved for pods ahead in the queue"
    pool = one.device.pool
    if isinstance(pool, MigPool):
        spec = pool.model.profile(pool.profiles[resource])
        assert spec is not None
        return _mig_limit(pool.model, spec, one.gpu.retained, _free(one))
    if not MpsPool.clients(one.device.base):
        return f"all {MAX_CLIENTS} MPS clients that it can serve are in use"
    return f"{_free(one)} MiB of its memory are free, and the slice needs {_size(one, resource)} MiB"


def _mig_limit(model: GpuModel, spec: ProfileSpec, retained: Iterable[PartitionView], free: int) -> str:
    others = [found for part in retained if (found := model.profile(part.profile)) is not None]
    rival = next((other for other in others if model.excludes(spec.name, other.name)), None)
    if rival is not None and "+me" in spec.name and "+me" in rival.name:
        return "it can hold one instance with media engines (.me)"
    if rival is not None:
        return f"{short_resource(spec.name)} and {short_resource(rival.name)} cannot be on one GPU"
    compute_free = model.compute_slices - sum(other.compute_slices for other in others)
    if compute_free < spec.compute_slices:
        return _used_up("compute slice", compute_free, model.compute_slices, spec.compute_slices)
    if free < spec.size:
        return _used_up("memory slice", free, model.slots, spec.size)
    return "what is in use there leaves no place where it may start"


def _used_up(noun: str, free: int, total: int, needed: int) -> str:
    if free <= 0:
        return f"all {counted(total, noun)} are in use"
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
    return MpsPool.state_of(shareable_mib(one.gpu.model.memory_mib) - taken_mib, len(device.parts))


def _state_without(one: Candidate, released: Sequence[PartitionView]) -> int:
    """With what this pass placed as well."""
    parts = [part for part in one.gpu.retained if part not in released]
    model, device = one.gpu.model, one.device
    assert model is not None
    if one.gpu.kind is Partitioning.MIG:
        return occupancy(model, mig_layout(parts)) | device.state & ~device.base
    taken_mib = MpsPool.free_mib(device.base) - MpsPool.free_mib(device.state)
    free_mib = shareable_mib(model.memory_mib) - taken_mib - mps_mib(parts)
    return MpsPool.state_of(free_mib, len(parts) + len(device.parts))


def _free(one: Candidate) -> int:
    pool = one.device.pool
    if isinstance(pool, MigPool):
        return pool.free_slots(one.device.base)
    return MpsPool.free_mib(one.device.base)


def _size(one: Candidate, resource: str) -> int:
    return _slices(one, resource) or slice_mib(resource)


def _slices(one: Candidate, resource: str) -> int:
    """Memory slices of a MIG instance; 0 for MPS slices."""
    pool = one.device.pool
    spec = pool.model.profile(pool.profiles[resource]) if isinstance(pool, MigPool) else None
    return spec.size if spec is not None else 0


def _fewest_holders(one: Candidate) -> tuple[int, str, int]:
    return (len(one.gpu.retained), one.stock.node.name, one.gpu.view.index)


def _spelled(part: PartitionView) -> str:
    what = f"{short_resource(part.profile)} at {part.start}" if part.profile else part.resource.rpartition("/")[2]
    return f"{what} ({part.pod or UNNAMED_POD})"


def taken_by_others(gpus: int) -> Answer:
    which = {1: "The only suitable GPU is", 2: "Both suitable GPUs are"}.get(gpus, f"All {gpus} suitable GPUs are")
    message = f"{which} taken by pods ahead in the queue. Wait, or add a GPU node."
    return Answer(UnplacedReason.NO_CAPACITY, message)

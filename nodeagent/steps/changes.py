"""What to do on one GPU now: offer, withdraw, destroy, create; and what is in the way.

In go the target, what stands on the GPU, and a verdict on each of its partitions; out comes a `GpuChange`. Pure: it is
computed anew in every pass, so a change that was cut off anywhere goes on from what is then observed. A partition that
is not free is never destroyed, nor withdrawn while a pod holds it under the id that it is advertised with, and nothing
is destroyed that was not withdrawn and seen to be gone. A whole GPU is first advertised when it is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crds.v1alpha1.names import Reason
from nodeagent.desired.target import AsItIs, MigTarget, MpsTarget, Refused, Target, WholeTarget
from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.driver import GpuInstance, ObservedGpu
from nodeagent.hardware.partitions import Partition, mps_partition, whole
from nodeagent.observed.usage import Use, Verdict
from partitioning.layouts import Instance
from partitioning.mps import MAX_CLIENTS, MpsSlice
from partitioning.steps import change

NO_IDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A GPU as this pass found it."""

    gpu: ObservedGpu
    partitions: tuple[Partition, ...]
    verdict: Callable[[Partition], Verdict]
    withdrawn: frozenset[str] = NO_IDS
    """Ids that the config in force, or on its way, does not offer."""
    released: frozenset[str] = NO_IDS
    """Those of them that the kubelet has let go and that are free: what lies behind may be destroyed."""
    unfinished: frozenset[Instance] = frozenset()
    """Placements at which this agent was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChange:
    """The work on one GPU. First destroy, then finish and create; offer and withdraw go into the plugin's config."""

    gpu: ObservedGpu
    target: Target
    offer: tuple[Partition, ...] = ()
    withdraw: tuple[Partition, ...] = ()
    destroy: tuple[GpuInstance, ...] = ()
    finish: tuple[GpuInstance, ...] = ()
    """Half-made instances that are wanted: only their compute instance is missing."""
    create: tuple[Instance, ...] = ()
    in_the_way: tuple[tuple[Partition, Verdict], ...] = ()
    """Not wanted, but used or not known to be free; or wanted, and cut up by somebody else."""
    missing: tuple[str, ...] = ()
    """Wanted and not there yet."""
    differs: bool = False
    """Paused, and something would be to do."""

    @property
    def acts(self) -> bool:
        """There is something to do in hardware now."""
        return bool(self.destroy or self.finish or self.create)

    @property
    def converged(self) -> bool:
        """The GPU holds what the target asks, and nothing else."""
        return not (self.acts or self.withdraw or self.in_the_way or self.missing or self.differs)


def gpu_change(target: Target, standing: Standing) -> GpuChange:
    """What can be done now towards `target`."""
    if isinstance(target, MigTarget):
        return _mig(target, standing)
    if isinstance(target, MpsTarget):
        return _mps(target, standing)
    if isinstance(target, WholeTarget):
        return _whole(target, standing)
    return _as_it_is(target, standing)


def _as_it_is(target: AsItIs | Refused, standing: Standing) -> GpuChange:
    gpu = standing.gpu
    if gpu.problem:
        offer = tuple(p for p in standing.partitions if p.id not in standing.withdrawn)
        withdraw = tuple(p for p in standing.partitions if p.id in standing.withdrawn)
        return GpuChange(gpu=gpu, target=target, offer=offer, withdraw=withdraw)
    usable = tuple(p for p in standing.partitions if p.offerable)
    # Hopper forgets its MIG mode at a reboot: a pod that got the GPU whole would keep people from turning it on again.
    waits_for_mode = isinstance(target, Refused) and target.reason is Reason.MIG_MODE_DISABLED
    if not standing.partitions and not gpu.mig_enabled and not waits_for_mode:
        # Ours is the only plugin of the node: an uncut GPU that nobody planned must not be lost to pods.
        usable = (whole(gpu),)
    offer, withdraw = _split(standing, usable)
    leftover = [i for i in gpu.instances if i.half_made and i.placed in standing.unfinished]
    would = gpu_change(target.planned, standing) if isinstance(target, AsItIs) and target.planned else None
    return GpuChange(
        gpu=gpu,
        target=target,
        offer=offer,
        withdraw=withdraw,
        destroy=tuple(leftover),
        in_the_way=_judged(standing, withdraw),
        missing=would.missing if would else (),
        differs=would is not None and not would.converged,
    )


def _mig(target: MigTarget, standing: Standing) -> GpuChange:
    gpu = standing.gpu
    by_place = {p.placed: p for p in standing.partitions if p.placed is not None}
    busy = {place for place, p in by_place.items() if not (p.offerable and standing.verdict(p).free)}
    steps = change(gpu.layout, target.layout, busy)
    doomed = [by_place[place] for place in steps.destroy if place in by_place]
    destroy = [
        instance
        for place in steps.destroy
        if (instance := gpu.at(place)) and (instance.half_made or by_place[place].id in standing.released)
    ]
    kept, unusable = _split(standing, [p for place in steps.keep if (p := by_place.get(place)) and p.offerable])
    offer, held = _held(standing, [by_place[place] for place in steps.blocked])
    left = gpu.layout.without(instance.placed for instance in destroy)
    finish = [i for place in steps.keep if (i := gpu.at(place)) and i.half_made]
    # Somebody cut up what is wanted: it stands where it should, and no pod can have it.
    spoilt = [place for place in steps.keep if (p := by_place.get(place)) and not p.offerable]
    return GpuChange(
        gpu=gpu,
        target=target,
        offer=kept + offer,
        withdraw=tuple(doomed) + held + unusable,
        destroy=tuple(destroy),
        finish=tuple(finish),
        # Beside what still stands once this pass has destroyed what it may.
        create=tuple(place for place in steps.create if not any(gpu.collide(place, other) for other in left)),
        in_the_way=_judged(standing, [*(by_place[place] for place in [*steps.blocked, *spoilt]), *unusable]),
        missing=tuple(str(place) for place in target.layout if place not in by_place or place in spoilt),
    )


def _mps(target: MpsTarget, standing: Standing) -> GpuChange:
    matching, absent, surplus = _match(target.slices, standing)
    alone = whole(standing.gpu)
    if not standing.partitions and not standing.verdict(alone).free:
        # Nothing of it is advertised, and still something runs on it.
        missing = tuple(f"MPS slice {share.label}" for share in absent)
        in_the_way = _judged(standing, [alone])
        return GpuChange(gpu=standing.gpu, target=target, withdraw=(alone,), in_the_way=in_the_way, missing=missing)
    keep, unusable = _split(standing, matching)
    offer, withdraw, in_the_way = _give_up(standing, surplus)
    made: list[Partition] = []
    staying = [*matching, *offer, *withdraw]
    left_over: list[MpsSlice] = []
    for share in absent:
        new = _next_slice(standing.gpu, share, [*staying, *made])
        if new is None or standing.verdict(new).other_id:
            left_over.append(share)
        else:
            made.append(new)
    return GpuChange(
        gpu=standing.gpu,
        target=target,
        offer=(*keep, *offer, *made),
        withdraw=(*withdraw, *unusable),
        in_the_way=(*in_the_way, *_judged(standing, unusable)),
        missing=tuple(f"MPS slice {share.label}" for share in left_over),
    )


def _whole(target: WholeTarget, standing: Standing) -> GpuChange:
    slices = [p for p in standing.partitions if p.kind is DeviceKind.MPS]
    offer, withdraw, in_the_way = _give_up(standing, slices)
    new: tuple[Partition, ...] = ()
    if not (offer or withdraw):
        new, withdraw = _split(standing, [whole(standing.gpu)])
        in_the_way = _judged(standing, withdraw)
    return GpuChange(
        gpu=standing.gpu,
        target=target,
        offer=new or offer,
        withdraw=withdraw,
        in_the_way=in_the_way,
        missing=() if new else ("the whole GPU",),
    )


def _split(standing: Standing, usable: Iterable[Partition]) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Which are advertised, and which are not because a pod could get them beside another holder."""
    found = tuple(usable)
    offer = tuple(p for p in found if _advertisable(standing, p))
    return offer, tuple(p for p in found if p not in offer)


def _advertisable(standing: Standing, partition: Partition) -> bool:
    verdict = standing.verdict(partition)
    if verdict.other_id:
        # The kubelet takes the id that we advertise for free, and would give it to a second pod.
        return False
    if partition.kind is not DeviceKind.WHOLE or verdict.free or verdict.pod:
        return True
    # Not known to be free now: what is advertised already stays, or it would come and go.
    return partition.id not in standing.withdrawn and any(partition.id == p.id for p in standing.partitions)


def _judged(standing: Standing, found: Iterable[Partition]) -> tuple[tuple[Partition, Verdict], ...]:
    return tuple((partition, standing.verdict(partition)) for partition in found)


def _held(standing: Standing, blocked: Iterable[Partition]) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Which of the blocked ones are offered on, and which stay withdrawn.

    A held id must stay in the kubelet's list, or it hides a free one from the scheduler, which only counts. One that
    was withdrawn while it was free, and is merely not known to be free now, stays withdrawn: else it would flap.
    """
    offer, unusable = _split(standing, (p for p in blocked if p.offerable))
    quiet = tuple(p for p in offer if p.id in standing.withdrawn and standing.verdict(p).use is Use.UNKNOWN)
    return tuple(p for p in offer if p not in quiet), quiet + unusable


def _give_up(
    standing: Standing, surplus: Iterable[Partition]
) -> tuple[tuple[Partition, ...], tuple[Partition, ...], tuple[tuple[Partition, Verdict], ...]]:
    """Offered on, withdrawn, and in the way. What was released is in none of them: it ceases to exist."""
    here = [p for p in surplus if p.id not in standing.released]
    busy = [p for p in here if not standing.verdict(p).free]
    offer, held = _held(standing, busy)
    withdraw = tuple(p for p in here if p not in busy) + held
    return offer, withdraw, _judged(standing, busy)


def _match(wanted: Iterable[MpsSlice], standing: Standing) -> tuple[list[Partition], list[MpsSlice], list[Partition]]:
    """Slices that stay (used ones first, then the lowest numbers), wanted ones that are absent, and the surplus."""
    ordered = sorted(
        (p for p in standing.partitions if p.kind is DeviceKind.MPS),
        key=lambda p: (standing.verdict(p).free, p.id in standing.withdrawn, p.number, p.id),
    )
    keep: list[Partition] = []
    absent: list[MpsSlice] = []
    for share in wanted:
        same = [p for p in ordered if (p.resource, p.memory_mib) == (share.resource, share.memory_mib)]
        exact = [p for p in same if p.thread_percent == share.thread_percent]
        if same:
            # With other threads it is the same slice: the new limit counts for the next pod that gets it.
            ordered.remove((exact or same)[0])
            keep.append(mps_partition(standing.gpu.uuid, share, (exact or same)[0].number))
        else:
            absent.append(share)
    wholes = [p for p in standing.partitions if p.kind is DeviceKind.WHOLE]
    return keep, absent, [*ordered, *wholes]


def _next_slice(gpu: ObservedGpu, share: MpsSlice, staying: Iterable[Partition]) -> Partition | None:
    """The slice with the lowest free number, if there is room beside everything that still stands."""
    here = tuple(staying)
    memory_mib = gpu.model.memory_mib if gpu.model else 0
    room = sum(p.memory_mib for p in here) + share.memory_mib <= memory_mib and len(here) < MAX_CLIENTS
    if not room or any(p.kind is DeviceKind.WHOLE for p in here):
        return None
    taken = {p.id for p in here}
    candidates = (mps_partition(gpu.uuid, share, number) for number in range(MAX_CLIENTS))
    return next((new for new in candidates if new.id not in taken), None)

"""Decides what to do on one GPU now: advertise, withdraw, destroy, create; and what blocks the rest.

Takes the target and the GPU with a verdict on each of its partitions, returns a `GpuChange`. Pure: it is computed again
in every pass, so a change that was interrupted anywhere continues from what is then observed. A partition that is not
free is never destroyed, and nothing is destroyed that was not withdrawn and confirmed gone. Nothing is withdrawn while
a pod holds it under the id that it is advertised with, but on a node that is not enabled any more. A whole GPU is first
advertised when it is free.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crds.v1alpha1.names import Reason
from nodeagent.desired.target import Disabled, MigTarget, MpsTarget, Refusal, Target, Unchanged, WholeTarget
from nodeagent.handover.config import DeviceKind, PluginConfig
from nodeagent.hardware.driver import GpuInstance, ObservedGpu
from nodeagent.hardware.partitions import Partition, mps_partition, whole
from nodeagent.observed.usage import Use, Verdict
from nodeagent.steps.judged import JudgedGpu
from partitioning.layouts import Instance
from partitioning.mps import MAX_CLIENTS, REPLICA, MpsSlice, shareable_mib
from partitioning.resources import ACK_MEMORY
from partitioning.steps import change


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChange:
    """The work on one GPU. First destroy, then finish and create; advertise and withdraw change the plugin's config."""

    gpu: ObservedGpu
    target: Target
    advertise: tuple[Partition, ...] = ()
    withdraw: tuple[Partition, ...] = ()
    destroy: tuple[GpuInstance, ...] = ()
    finish: tuple[GpuInstance, ...] = ()
    """Half-made instances that are desired: only their compute instance is missing."""
    create: tuple[Instance, ...] = ()
    blocking: tuple[tuple[Partition, Verdict], ...] = ()
    """Not desired, but used or not known to be free; or desired, with compute instances that are not ours."""
    missing: tuple[str, ...] = ()
    """Desired and not there yet."""
    unreleased: tuple[Partition, ...] = ()
    """Of a GPU of a disabled node: not known to be free, or not yet known to be gone from the kubelet's list."""
    kept: tuple[Partition, ...] = ()
    """Not desired, and advertised until the next try to destroy it."""
    differs: bool = False
    """Paused, and something is to be done."""

    @property
    def acts(self) -> bool:
        """There is something to do in hardware now."""
        return bool(self.destroy or self.finish or self.create)

    @property
    def converged(self) -> bool:
        """The GPU has what the target demands, and nothing else."""
        return not (self.acts or self.withdraw or self.blocking or self.missing or self.kept or self.differs)

    def moves(self, config: PluginConfig) -> bool:
        """Whether it would change the GPU, or what is advertised of it by this config."""
        listed = {device for device in config.advertised() if device.gpu == self.gpu.uuid}
        withdrawn = {d.id for d in config.devices if d.gpu == self.gpu.uuid}.intersection(config.withdrawn)
        return self.acts or {p.device for p in self.advertise} != listed or {p.id for p in self.withdraw} != withdrawn

    @property
    def hardware_differs(self) -> bool:
        """From what the target demands. Slices and whole GPUs are no hardware of their own."""
        if isinstance(self.target, MigTarget):
            others = any(instance.uuid is None or instance.reduced for instance in self.gpu.instances)
            return others or self.gpu.layout != self.target.layout
        return isinstance(self.target, Refusal)


def gpu_change(target: Target, judged: JudgedGpu) -> GpuChange:
    """What can be done now towards `target`."""
    if isinstance(target, MigTarget):
        return _mig(target, judged)
    if isinstance(target, MpsTarget):
        return _mps(target, judged)
    if isinstance(target, WholeTarget):
        return _whole(target, judged)
    if isinstance(target, Disabled):
        return _disabled(target, judged)
    return _unchanged(target, judged)


def _disabled(target: Disabled, judged: JudgedGpu) -> GpuChange:
    """Everything leaves the list at once, also what a pod holds: else the next pod of a queue would get it again.

    The holder keeps it. A held id that is not listed hides no free one here, since none is listed. A slice that was
    released ceases to exist, and with the last one its daemon; an instance stays, and so does its withdrawal.
    """
    ours = tuple(p for p in judged.partitions if p.advertisable)
    return GpuChange(
        gpu=judged.gpu,
        target=target,
        withdraw=tuple(p for p in ours if p.kind is not DeviceKind.MPS or p.id not in judged.released),
        blocking=judged.with_verdicts(p for p in ours if not judged.verdict(p).free),
        unreleased=tuple(p for p in ours if p.id not in judged.released),
    )


def _unchanged(target: Unchanged | Refusal, judged: JudgedGpu) -> GpuChange:
    gpu = judged.gpu
    if gpu.problem:
        advertise, held = judged.split_advertisable(p for p in judged.partitions if p.id not in judged.withdrawn)
        withdrawn = tuple(p for p in judged.partitions if p.id in judged.withdrawn)
        return GpuChange(gpu=gpu, target=target, advertise=advertise, withdraw=withdrawn + held)
    usable = tuple(p for p in judged.partitions if p.advertisable)
    planned = target.planned if isinstance(target, Unchanged) else None
    # Hopper forgets its MIG mode at a reboot: a pod that got the GPU whole would keep people from turning it on again.
    waits_for_mode = isinstance(target, Refusal) and target.reason is Reason.MIG_MODE_DISABLED
    # Paused slices, of which a new driver left none: a pod that got the GPU whole would keep them from coming back.
    waits_for_slices = isinstance(planned, MpsTarget)
    if not (judged.partitions or gpu.mig_enabled or waits_for_mode or waits_for_slices):
        # Ours is the only plugin of the node: an unplanned, unpartitioned GPU must not be lost to pods.
        usable = (whole(gpu),)
    advertise, withdraw = judged.split_advertisable(usable)
    leftover = [i for i in gpu.instances if i.half_made and i.placed in judged.unfinished]
    would = gpu_change(planned, judged) if planned else None
    missing = would.missing if would else ()
    if isinstance(planned, MpsTarget):
        # Slices begin to exist when they are advertised: what would be so at once is not there now.
        missing = _slice_titles(_match(planned.slices, judged)[1])
    return GpuChange(
        gpu=gpu,
        target=target,
        advertise=advertise,
        withdraw=withdraw,
        destroy=tuple(leftover),
        blocking=judged.with_verdicts(withdraw),
        missing=missing,
        differs=would is not None and (bool(missing) or not would.converged),
    )


def _mig(target: MigTarget, judged: JudgedGpu) -> GpuChange:
    gpu = judged.gpu
    by_place = {p.placed: p for p in judged.partitions if p.placed is not None}
    in_use = {place for place, p in by_place.items() if not (p.advertisable and judged.verdict(p).free)}
    # One with too few multiprocessors is not what is desired: it goes once it is free, and is made in full then.
    reduced = [instance.placed for instance in gpu.instances if instance.reduced]
    steps = change(gpu.layout, target.layout.without(reduced), in_use)
    kept = [p for place in steps.keep if (p := by_place.get(place))]
    advertise, unusable = judged.split_advertisable(p for p in kept if p.advertisable)
    # In place, but with compute instances that are not ours: no pod can have it.
    cut_up = [p for p in kept if not p.advertisable]
    in_the_way = [by_place[place] for place in steps.blocked]
    held, withheld = judged.split_in_use(in_the_way)
    surplus = [by_place[place] for place in steps.destroy if place in by_place]
    kept_on, surplus = (tuple(surplus), []) if judged.rests else ((), surplus)
    # A half-made instance was never on the list.
    destroy = [
        instance
        for place in steps.destroy
        if not judged.rests
        and (instance := gpu.at(place))
        and (instance.half_made or by_place[place].id in judged.released)
    ]
    left = gpu.layout.without(instance.placed for instance in destroy)
    return GpuChange(
        gpu=gpu,
        target=target,
        advertise=advertise + held + kept_on,
        kept=kept_on,
        withdraw=tuple(surplus) + withheld + unusable,
        destroy=tuple(destroy),
        finish=tuple(instance for place in steps.keep if (instance := gpu.at(place)) and instance.half_made),
        # Next to what remains once this pass has destroyed what it may.
        create=tuple(place for place in steps.create if not any(gpu.collide(place, other) for other in left)),
        blocking=judged.with_verdicts([*in_the_way, *cut_up, *unusable]),
        missing=tuple(
            str(place)
            for place in target.layout
            if place not in by_place or by_place[place] in cut_up or place in reduced
        ),
    )


def _mps(target: MpsTarget, judged: JudgedGpu) -> GpuChange:
    matching, absent, surplus = _match(target.slices, judged)
    alone = whole(judged.gpu)
    if absent and not judged.partitions and not judged.verdict(alone).free:
        # Nothing of it is advertised, and still something runs on it.
        missing = _slice_titles(absent)
        blocking = judged.with_verdicts([alone])
        return GpuChange(gpu=judged.gpu, target=target, withdraw=(alone,), blocking=blocking, missing=missing)
    keep, unusable = judged.split_advertisable(matching)
    advertise, withdraw, blocking = _withdraw_surplus(judged, surplus)
    made: list[Partition] = []
    retained = [*matching, *advertise, *withdraw]
    left_over: list[MpsSlice] = []
    # Equal replicas change together, once no container holds one, as with NVIDIA's device plugin.
    waits = target.replicas and bool(advertise or withdraw)
    for share in absent:
        new = None if waits else _next_slice(judged.gpu, share, [*retained, *made], len(target.slices))
        # An id of another plugin may have the form of a replica's.
        if new is None or judged.verdict(new).other_id or judged.verdict(new).use is Use.USED:
            left_over.append(share)
        else:
            made.append(new)
    return GpuChange(
        gpu=judged.gpu,
        target=target,
        advertise=(*keep, *advertise, *made),
        withdraw=(*withdraw, *unusable),
        blocking=(*blocking, *judged.with_verdicts(unusable)),
        missing=_slice_titles(left_over),
    )


def _slice_titles(shares: Sequence[MpsSlice]) -> tuple[str, ...]:
    """One each, but one for all units together."""
    units = sum(share.resource == ACK_MEMORY for share in shares)
    titles = [f"MPS slice {s.label}" if s.label else "MPS replica" for s in shares if s.resource != ACK_MEMORY]
    return (*titles, f"{units} of {ACK_MEMORY}") if units else tuple(titles)


def _whole(target: WholeTarget, judged: JudgedGpu) -> GpuChange:
    slices = [p for p in judged.partitions if p.kind is DeviceKind.MPS]
    advertise, withdraw, blocking = _withdraw_surplus(judged, slices)
    new: tuple[Partition, ...] = ()
    if not (advertise or withdraw):
        new, withdraw = judged.split_advertisable([whole(judged.gpu)])
        blocking = judged.with_verdicts(withdraw)
    return GpuChange(
        gpu=judged.gpu,
        target=target,
        advertise=new or advertise,
        withdraw=withdraw,
        blocking=blocking,
        missing=() if new else ("the whole GPU",),
    )


def _withdraw_surplus(
    judged: JudgedGpu, surplus: Iterable[Partition]
) -> tuple[tuple[Partition, ...], tuple[Partition, ...], tuple[tuple[Partition, Verdict], ...]]:
    """Advertised, withdrawn, and blocking. What was released is in none of them: it ceases to exist."""
    here = [p for p in surplus if p.id not in judged.released]
    in_use = [p for p in here if not judged.verdict(p).free]
    advertise, withheld = judged.split_in_use(in_use)
    withdraw = tuple(p for p in here if p not in in_use) + withheld
    return advertise, withdraw, judged.with_verdicts(in_use)


def _match(desired: Iterable[MpsSlice], judged: JudgedGpu) -> tuple[list[Partition], list[MpsSlice], list[Partition]]:
    """Slices that stay (used ones first, then the lowest numbers), desired ones that are absent, and the surplus."""
    ordered = sorted(
        (p for p in judged.partitions if p.kind is DeviceKind.MPS),
        key=lambda p: (judged.verdict(p).free, p.id in judged.withdrawn, p.number, p.id),
    )
    keep: list[Partition] = []
    absent: list[MpsSlice] = []
    for share in desired:
        same = [p for p in ordered if (p.resource, p.memory_mib) == (share.resource, share.memory_mib)]
        exact = [p for p in same if p.thread_percent == share.thread_percent]
        if same:
            # With other threads it is the same slice: the new limit counts for the next pod that gets it.
            ordered.remove((exact or same)[0])
            keep.append(mps_partition(judged.gpu.uuid, share, (exact or same)[0].number))
        else:
            absent.append(share)
    return keep, absent, [*ordered, *(p for p in judged.partitions if p.kind is DeviceKind.WHOLE)]


def _next_slice(gpu: ObservedGpu, share: MpsSlice, retained: Iterable[Partition], desired: int) -> Partition | None:
    """The slice with the lowest free number, if there is room next to everything that remains.

    `desired` is how many the target has, which were checked against what this GPU can serve.
    """
    here = tuple(retained)
    memory_mib = gpu.model.memory_mib if gpu.model else 0
    memory_mib = memory_mib if share.label == REPLICA else shareable_mib(memory_mib)
    most = max(MAX_CLIENTS, desired)
    room = sum(p.memory_mib for p in here) + share.memory_mib <= memory_mib and len(here) < most
    if not room or any(p.kind is DeviceKind.WHOLE for p in here):
        return None
    taken = {p.id for p in here}
    candidates = (mps_partition(gpu.uuid, share, number) for number in range(most))
    return next((new for new in candidates if new.id not in taken), None)

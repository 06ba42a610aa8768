"""Decides the state of one GPU after a pass: its state and reason, and a sentence for people.

Takes the item, the change that was worked on, what the actuator did, and which stage of confirmation was reached;
returns a `GpuOutcome`. Pure.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from crds.v1alpha1 import gpu_operator
from crds.v1alpha1.names import GpuState, PartitionState, Reason
from nodeagent.advertise.advertiser import Advertised
from nodeagent.advertise.confirm import Stage
from nodeagent.desired.items import DesiredItem
from nodeagent.desired.target import Disabled, Refusal, Unchanged
from nodeagent.hardware.driver import InUseError, ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.usage import Use, Verdict
from nodeagent.outcome.driver_clients import DriverClient, sentence
from nodeagent.outcome.pass_result import GpuOutcome, PartitionOutcome, PassWork, fault
from nodeagent.steps.actuator import Actuated, HeldOpenError
from nodeagent.steps.changes import GpuChange
from partitioning.resources import ACK_MEMORY

NAMED_HOLDERS = 3
HELD_OPEN_SECONDS = 300.0
"""A GPU that something unseen holds open for this long is a person's."""


def gpu_outcome(
    item: DesiredItem, work: PassWork, partitions: tuple[PartitionOutcome, ...], notes: Iterable[str]
) -> GpuOutcome:
    """`notes` are sentences that are true in whatever state the GPU is."""
    change = work.changes[item.index]
    confirmed_hash = work.confirmed.get(change.gpu.uuid, "")
    if work.observation.driver_closed:
        # So that others can work on it: the GPU goes on by itself.
        state = GpuState.CHANGING if item.item_hash else GpuState.UNMANAGED
        reason, message = work.observation.closed_reason, str(work.observation.driver_problem)
    else:
        failure = _failure(work.actuated.get(change.gpu.uuid, Actuated()), sentence(_unlisted(work, change.gpu)))
        state, reason, message = _state(item.item_hash, change, failure, work.advertised.stage(change), confirmed_hash)
    ready = state is GpuState.READY
    if ready and not message:
        message = next((doubt_about([one.partition.title], one.doubt) for one in partitions if one.doubt), "")
    return GpuOutcome(
        index=change.gpu.index,
        gpu=change.gpu,
        item_hash=item.item_hash,
        state=state,
        reason=reason,
        message="; ".join(filter(None, (message, *notes))),
        plan_hash=item.item_hash if ready else confirmed_hash if item.item_hash else "",
        converged=change.converged and not isinstance(change.target, Refusal),
        partitions=_with_units_merged(partitions),
        missing=change.missing,
    )


Found: TypeAlias = tuple[GpuState, Reason, str]


def _state(item_hash: str, change: GpuChange, failure: Found | None, stage: Stage, confirmed_hash: str) -> Found:
    if isinstance(change.target, Disabled):
        return _disabled(change, stage)
    if not item_hash:
        if why := fault(change.gpu):
            return GpuState.UNMANAGED, Reason.UNHEALTHY, why
        return GpuState.UNMANAGED, Reason.UNMANAGED, _unmanaged(change)
    if isinstance(change.target, Refusal):
        return GpuState.FAILED, change.target.reason, change.target.message
    if why := fault(change.gpu):
        return GpuState.FAILED, Reason.UNHEALTHY, why
    if stage.reason is Reason.FOREIGN_OWNER:
        return GpuState.FAILED, stage.reason, stage.message
    if isinstance(change.target, Unchanged):
        # An item is left undone only while its plan is paused.
        if confirmed_hash == item_hash and change.converged:
            return GpuState.READY, Reason.CONFIRMED, "matches the plan, which is paused"
        lacks = f"; {', '.join(change.missing)} is not there" if change.missing else ""
        message = f"the plan is paused: nothing is changed until spec.paused is removed{lacks}"
        return GpuState.CHANGING, Reason.PAUSED, message
    if failure is not None:
        return failure
    if not change.converged:
        return _under_way(change, stage)
    if stage.schedulable:
        return GpuState.READY, Reason.CONFIRMED, ""
    return GpuState.FAILED if stage.failed else GpuState.ADVERTISING, stage.reason, stage.message


def _unlisted(work: PassWork, gpu: ObservedGpu) -> list[DriverClient]:
    """Programs that have this GPU open, but those of pods that hold a device: these are known, and in no one's way."""
    known = set(work.observation.usage.held.values())
    found = work.clients.get(gpu.minor, ())
    return [client for client in (() if isinstance(found, NoAnswer) else found) if client.pod not in known]


def _failure(actuated: Actuated, held_by: str) -> Found | None:
    """What the driver answered, where it refused something; `held_by` names programs that have the GPU open."""
    error = actuated.error
    if not isinstance(error, InUseError):
        return (GpuState.FAILED, Reason.DRIVER_ERROR, str(error)) if error is not None else None
    if not isinstance(error, HeldOpenError):
        return GpuState.WAITING_FOR_RELEASE, Reason.WAITING_FOR_RELEASE, str(error)
    by = f"open in {held_by}" if held_by else "no process is seen that has it open"
    message = f"{error} ({by}): it is advertised until the next try"
    if actuated.seconds < HELD_OPEN_SECONDS:
        return GpuState.WAITING_FOR_RELEASE, Reason.HELD_OPEN, message
    remedy = (
        f"DCGM is known to do this: take it off the node for the change with kubectl label node NODE "
        f"{gpu_operator.LETS_GO}, and back with {gpu_operator.COMES_BACK}"
    )
    return GpuState.FAILED, Reason.HELD_OPEN, f"{message}. {remedy}"


def _under_way(change: GpuChange, stage: Stage) -> Found:
    blocking = {partition.id for partition, _ in change.blocking}
    withdrawing = [partition.title for partition in change.withdraw if partition.id not in blocking]
    if withdrawing and stage.failed:
        return GpuState.FAILED, stage.reason, stage.message
    if withdrawing:
        message = f"being withdrawn from the kubelet, then destroyed if unused: {', '.join(withdrawing)}"
        return GpuState.CHANGING, Reason.WITHDRAWING, f"{message}; {stage.message}" if stage.message else message
    if change.acts or not change.blocking:
        return GpuState.CHANGING, Reason.CHANGING, f"being created: {', '.join(change.missing) or 'nothing'}"
    return GpuState.WAITING_FOR_RELEASE, waiting_reason(change), holders(change)


def _disabled(change: GpuChange, stage: Stage) -> Found:
    if change.blocking:
        return GpuState.WAITING_FOR_RELEASE, waiting_reason(change), holders(change)
    if change.unreleased:
        message = f"being withdrawn from the kubelet: {', '.join(p.title for p in change.unreleased)}"
        return GpuState.CHANGING, Reason.WITHDRAWING, f"{message}; {stage.message}" if stage.message else message
    return GpuState.UNMANAGED, Reason.NODE_DISABLED, "the node is not enabled: no pod gets a device of this GPU"


def waiting_reason(change: GpuChange) -> Reason:
    """Whether pods are known to hold what is in the way."""
    known = any(verdict.use is Use.USED for _, verdict in change.blocking)
    return Reason.WAITING_FOR_RELEASE if known else Reason.USE_UNKNOWN


def _unmanaged(change: GpuChange) -> str:
    message = "not managed by the plan: advertised unchanged, except where it is not free"
    return f"{message}: {holders(change)}" if change.blocking else ""


def holders(change: GpuChange) -> str:
    """What is in the way, and who holds it."""
    # One reason for which the use of several is not known is one sentence.
    alike: dict[str, list[tuple[Partition, Verdict]]] = {}
    for partition, verdict in change.blocking:
        unknown = partition.advertisable and verdict.use is Use.UNKNOWN
        alike.setdefault(verdict.why if unknown else partition.id, []).append((partition, verdict))
    found = [_holder(same[0][0], same[0][1], [partition.title for partition, _ in same]) for same in alike.values()]
    more = f", and {len(found) - NAMED_HOLDERS} more" if len(found) > NAMED_HOLDERS else ""
    return "; ".join(found[:NAMED_HOLDERS]) + more


def _holder(partition: Partition, verdict: Verdict, titles: Sequence[str]) -> str:
    if not partition.advertisable:
        what = f"compute instances that gpuplan did not create{f', held by pod {verdict.pod}' if verdict.pod else ''}"
        return f"{partition.title} has {what}: once nothing uses them, destroy them with nvidia-smi mig -dci"
    if verdict.pod:
        given_as = f", which got it as {verdict.other_id}" if verdict.other_id else ""
        lost = ", of which the kubelet has lost its record, so that no further pod may get it: delete the pod"
        return f"{partition.title} is held by pod {verdict.pod}{lost if verdict.forgotten else given_as}"
    if verdict.use is Use.USED:
        return f"{partition.title} is in use: {verdict.why}"
    return doubt_about(titles, verdict.why)


def doubt_about(titles: Sequence[str], why: str) -> str:
    """`why` names the pod on whose account nothing is known."""
    return f"whether {', '.join(titles)} {'are' if titles[1:] else 'is'} in use is not known: {why}"


def _with_units_merged(partitions: Iterable[PartitionOutcome]) -> tuple[PartitionOutcome, ...]:
    """Units of ACK's resource are GiB, too many to list: one entry per holder, and one for the free ones."""
    found: dict[Hashable, PartitionOutcome] = {}
    for entry in partitions:
        unit = entry.partition
        key: Hashable = unit.id if unit.resource != ACK_MEMORY else (entry.state, entry.pod, entry.unhealthy)
        known = found.setdefault(key, entry)
        if known is not entry:
            sum_mib = known.partition.memory_mib + unit.memory_mib
            found[key] = replace(known, partition=replace(known.partition, memory_mib=sum_mib))
    return tuple(found.values())


def partition_outcome(partition: Partition, verdict: Verdict, advertised: Advertised) -> PartitionOutcome:
    unhealthy = partition.id in advertised.config.unhealthy
    state, pod = PartitionState.FREE, ""
    if verdict.use is Use.USED:
        state, pod = PartitionState.USED, verdict.pod
    elif partition.id in advertised.config.withdrawn and not verdict.other_id:
        state = PartitionState.WITHDRAWN
    elif verdict.use is Use.UNKNOWN or not partition.advertisable or unhealthy:
        state = PartitionState.UNKNOWN
    elif partition.id not in advertised.confirmation.schedulable.union(advertised.config.drained):
        state = PartitionState.PENDING
    doubt = verdict.why if state is PartitionState.UNKNOWN else ""
    return PartitionOutcome(partition=partition, state=state, pod=pod, unhealthy=unhealthy, doubt=doubt)

"""Summarises what one pass observed and did: per GPU its state, reason, a sentence, and every partition with its use.

Takes the change that was worked on, what the actuator did, and which stage of confirmation was reached; returns frozen
values that `status`, `metrics` and the log word in their own ways. A GPU is Ready only if hardware, plugin, kubelet and
Node agree with its item. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crds.v1alpha1.names import GpuState, PartitionState, Reason
from nodeagent.advertise.confirm import Confirmation, Stage
from nodeagent.desired.items import DesiredItems
from nodeagent.desired.target import Refused, Unchanged
from nodeagent.handover.config import PluginConfig
from nodeagent.hardware.driver import Health, InUseError, ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.observation import Observation
from nodeagent.observed.orphans import Orphans
from nodeagent.observed.usage import Use, Verdict
from nodeagent.steps.actuator import Actuated
from nodeagent.steps.changes import GpuChange

NAMED_HOLDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    partition: Partition
    state: PartitionState
    pod: str = ""

    @property
    def used(self) -> bool:
        """Or not known to be free."""
        return self.state in (PartitionState.USED, PartitionState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOutcome:
    """One GPU, or an index of the plan that no GPU has."""

    index: int
    gpu: ObservedGpu | None
    item_hash: str
    """Of the effective item; empty where the plan has none."""
    state: GpuState
    reason: Reason
    message: str = ""
    plan_hash: str = ""
    """Of the item that was confirmed last."""
    converged: bool = False
    """Hardware and slices are as planned, confirmed or not."""
    partitions: tuple[PartitionOutcome, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def managed(self) -> bool:
        return bool(self.item_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The result of a whole pass, for reports."""

    observation: Observation
    desired: DesiredItems
    outcomes: tuple[GpuOutcome, ...]
    actuated: Mapping[str, Actuated]
    """By GPU UUID."""
    confirmation: Confirmation
    config: PluginConfig
    advertise_message: str
    """Why not everything that is advertised is schedulable, where there is a reason."""

    @property
    def problem(self) -> tuple[Reason, str] | None:
        """What takes precedence over any GPU's own state: the driver does not answer, or the plan cannot be read."""
        if self.observation.driver_problem is not None:
            return Reason.DRIVER_ERROR, str(self.observation.driver_problem)
        unreadable = (
            self.desired.refused if self.observation.plan is not None and self.observation.plan.problem else None
        )
        return (unreadable.reason, unreadable.message) if unreadable is not None else None

    @property
    def advertised(self) -> bool:
        """Everything that is advertised is allocatable and schedulable."""
        return not self.advertise_message and all(stage.schedulable for stage in self.confirmation.stages.values())

    def of_state(self, *states: GpuState) -> list[GpuOutcome]:
        """GPUs of the plan only."""
        return [outcome for outcome in self.outcomes if outcome.managed and outcome.state in states]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything about one GPU that its outcome depends on."""

    change: GpuChange
    actuated: Actuated
    stage: Stage
    item_hash: str
    confirmed_hash: str
    paused: bool
    schedulable: frozenset[str]
    withdrawn: frozenset[str]
    """Ids that the config on disk withdraws."""
    unhealthy: frozenset[str]
    """Ids that it lists as Unhealthy."""
    orphans: Orphans
    """Pods whose device was on this GPU and no longer exists."""
    verdicts: tuple[tuple[Partition, Verdict], ...]
    """Of everything on the GPU."""


def gpu_outcome(found: Situation) -> GpuOutcome:
    """The state of one GPU of the node."""
    state, reason, message = _state(found)
    more = (_advertised_unhealthy(found), *_half_made(found), *_orphaned(found.orphans))
    message = "; ".join(filter(None, (message, *more)))
    ready = state is GpuState.READY
    return GpuOutcome(
        index=found.change.gpu.index,
        gpu=found.change.gpu,
        item_hash=found.item_hash,
        state=state,
        reason=reason,
        message=message,
        plan_hash=found.item_hash if ready else found.confirmed_hash if found.item_hash else "",
        converged=found.change.converged and not isinstance(found.change.target, Refused),
        partitions=tuple(_partition(p, verdict, found) for p, verdict in found.verdicts),
        missing=found.change.missing,
    )


def absent_gpu(index: int, item_hash: str, refused: Refused) -> GpuOutcome:
    """The plan lists a GPU that the node has not."""
    return GpuOutcome(
        index=index,
        gpu=None,
        item_hash=item_hash,
        state=GpuState.FAILED,
        reason=refused.reason,
        message=refused.message,
    )


def _state(found: Situation) -> tuple[GpuState, Reason, str]:
    change = found.change
    if not found.item_hash:
        if why := fault(change.gpu):
            return GpuState.UNMANAGED, Reason.UNHEALTHY, why
        return GpuState.UNMANAGED, Reason.UNMANAGED, _unmanaged(change)
    if isinstance(change.target, Refused):
        return GpuState.FAILED, change.target.reason, change.target.message
    if why := fault(change.gpu):
        return GpuState.FAILED, Reason.UNHEALTHY, why
    if found.stage.reason is Reason.FOREIGN_OWNER:
        return GpuState.FAILED, found.stage.reason, found.stage.message
    if found.paused and isinstance(change.target, Unchanged):
        if found.confirmed_hash == found.item_hash and change.converged:
            return GpuState.READY, Reason.CONFIRMED, "matches the plan, which is paused"
        lacks = f"; {', '.join(change.missing)} is not there" if change.missing else ""
        message = f"the plan is paused: nothing is changed until spec.paused is removed{lacks}"
        return GpuState.CHANGING, Reason.PAUSED, message
    if found.actuated.error is not None:
        held = isinstance(found.actuated.error, InUseError)
        state = GpuState.WAITING_FOR_RELEASE if held else GpuState.FAILED
        return state, Reason.WAITING_FOR_RELEASE if held else Reason.DRIVER_ERROR, str(found.actuated.error)
    if not change.converged:
        return _under_way(change, found.stage)
    if found.stage.schedulable:
        return GpuState.READY, Reason.CONFIRMED, ""
    state = GpuState.FAILED if found.stage.failed else GpuState.ADVERTISING
    return state, found.stage.reason, found.stage.message


def fault(gpu: ObservedGpu) -> str:
    """What is wrong with it; empty where the driver reads it and reports no fault."""
    return gpu.problem or (gpu.health_message if gpu.health is Health.UNHEALTHY else "")


def _advertised_unhealthy(found: Situation) -> str:
    listed = sum(partition.id in found.unhealthy for partition, _ in found.verdicts)
    if not listed:
        return ""
    which = "its partition is" if listed == 1 else f"its {listed} partitions are"
    return f"{which} advertised as Unhealthy: no further pod gets one, and a pod that holds one keeps it"


def _half_made(found: Situation) -> list[str]:
    """Without a journal entry of this agent they are left to an administrator."""
    change = found.change
    left = [] if found.paused else [i for i in change.gpu.instances if i.half_made]
    return [
        f"GPU instance {instance.id} ({instance.placed}) has no compute instance, so no pod can use it: destroy it "
        f"with nvidia-smi mig -dgi -i {change.gpu.index} -gi {instance.id}, or plan this GPU"
        for instance in left
        if instance not in (*change.destroy, *change.finish)
    ]


def _orphaned(orphans: Orphans) -> list[str]:
    found = [
        f"pod {pod} holds {device_id}, which no longer exists on this node: delete the pod"
        for device_id, pod in orphans[:NAMED_HOLDERS]
    ]
    return found + ([f"and {len(orphans) - NAMED_HOLDERS} more pods"] if len(orphans) > NAMED_HOLDERS else [])


def _under_way(change: GpuChange, stage: Stage) -> tuple[GpuState, Reason, str]:
    blocking = {partition.id for partition, _ in change.blocking}
    withdrawing = [partition.title for partition in change.withdraw if partition.id not in blocking]
    if withdrawing and stage.failed:
        return GpuState.FAILED, stage.reason, stage.message
    if withdrawing:
        message = f"being withdrawn from the kubelet, then destroyed if unused: {', '.join(withdrawing)}"
        return GpuState.CHANGING, Reason.WITHDRAWING, f"{message}; {stage.message}" if stage.message else message
    if change.acts or not change.blocking:
        return GpuState.CHANGING, Reason.CHANGING, f"being created: {', '.join(change.missing) or 'nothing'}"
    known = any(verdict.use is Use.USED for _, verdict in change.blocking)
    reason = Reason.WAITING_FOR_RELEASE if known else Reason.USE_UNKNOWN
    return GpuState.WAITING_FOR_RELEASE, reason, _holders(change)


def _unmanaged(change: GpuChange) -> str:
    message = "not managed by the plan: advertised unchanged"
    return f"{message}, except where it is not free: {_holders(change)}" if change.blocking else message


def _holders(change: GpuChange) -> str:
    holders = [_holder(partition, verdict) for partition, verdict in change.blocking]
    more = f", and {len(holders) - NAMED_HOLDERS} more" if len(holders) > NAMED_HOLDERS else ""
    return "; ".join(holders[:NAMED_HOLDERS]) + more


def _holder(partition: Partition, verdict: Verdict) -> str:
    if not partition.advertisable:
        remedy = "destroy them with nvidia-smi mig -dci"
        return f"{partition.title} has compute instances that gpuplan did not create: {remedy}"
    if verdict.pod:
        given_as = f", which got it as {verdict.other_id}" if verdict.other_id else ""
        return f"{partition.title} is held by pod {verdict.pod}{given_as}"
    if verdict.use is Use.USED:
        return f"{partition.title} is in use: {verdict.why}"
    return f"whether {partition.title} is in use is not known: {verdict.why}"


def _partition(partition: Partition, verdict: Verdict, found: Situation) -> PartitionOutcome:
    if verdict.use is Use.USED:
        return PartitionOutcome(partition=partition, state=PartitionState.USED, pod=verdict.pod)
    if partition.id in found.withdrawn:
        return PartitionOutcome(partition=partition, state=PartitionState.WITHDRAWN)
    if verdict.use is Use.UNKNOWN or not partition.advertisable or partition.id in found.unhealthy:
        return PartitionOutcome(partition=partition, state=PartitionState.UNKNOWN)
    covered = partition.id in found.schedulable
    return PartitionOutcome(partition=partition, state=PartitionState.FREE if covered else PartitionState.PENDING)

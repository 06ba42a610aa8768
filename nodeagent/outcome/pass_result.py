"""The values of a pass's result: what was done, and per GPU its state, reason, a sentence, and every partition.

`gpu_outcome` makes them; the modules of `report` word them in their own ways. A GPU is Ready only
if hardware, plugin, kubelet and Node agree with its item. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crds.v1alpha1.names import GpuState, PartitionState, Reason
from nodeagent.advertise.advertiser import Advertised
from nodeagent.desired.items import DesiredItems
from nodeagent.desired.target import Disabled, Refusal, Unchanged
from nodeagent.hardware.driver import Health, ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.observation import Observation
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.outcome.driver_clients import DriverClient
from nodeagent.steps.actuator import Actuated
from nodeagent.steps.changes import GpuChange


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    partition: Partition
    state: PartitionState
    pod: str = ""
    unhealthy: bool = False
    """Advertised as Unhealthy."""
    doubt: str = ""
    """Why its use is not known."""

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
class PassWork:
    """What a pass observed and did."""

    observation: Observation
    desired: DesiredItems
    changes: Mapping[int, GpuChange]
    """By index of the GPU."""
    actuated: Mapping[str, Actuated]
    """By GPU UUID."""
    advertised: Advertised
    confirmed: Mapping[str, str]
    """Hash of the item that was confirmed before this pass, by GPU UUID."""
    clients: Mapping[int | None, tuple[DriverClient, ...] | NoAnswer] = field(default_factory=dict)
    """Programs that have the files of a GPU open, by its minor, or (None) any of the driver's: where that matters."""

    def changed(self, index: int) -> bool:
        """Whether this pass changed a GPU, or what is advertised of it, for its item."""
        change = self.changes[index]
        done = self.actuated.get(change.gpu.uuid)
        if isinstance(change.target, Refusal | Unchanged | Disabled):
            return False
        before = {d for d in self.observation.readings.config.advertised() if d.gpu == change.gpu.uuid}
        return (done is not None and done.acted) or {p.device for p in change.advertise} != before


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How far a node is on its way out of gpuplan."""

    reason: Reason
    message: str
    disabled: bool = False
    """The node is not enabled any more."""
    done: bool = False
    """No pod holds a device of it, and none can get one."""

    @property
    def settled(self) -> bool:
        """Nothing of it is under way."""
        return self.done or not self.disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The result of a whole pass, for reports."""

    work: PassWork
    outcomes: tuple[GpuOutcome, ...]
    release: Release
    doubts_held_back: bool = False
    """Some partition is reported as Free, and by this pass alone it would be Unknown."""

    @property
    def observation(self) -> Observation:
        return self.work.observation

    @property
    def problem(self) -> tuple[Reason, str] | None:
        """What takes precedence over any GPU's own state: no answer of the driver, or a plan refused as a whole."""
        if self.observation.driver_problem is not None and not self.observation.driver_closed:
            return Reason.DRIVER_ERROR, str(self.observation.driver_problem)
        if self.work.desired.refused is None:
            return None
        return self.work.desired.refused.reason, self.work.desired.refused.message

    @property
    def held_twice(self) -> str:
        """A sentence for each device that two pods hold, and have held for a while."""
        lasting = ((i, pods) for i, (pods, lasts) in self.observation.usage.twice.items() if lasts)
        return "; ".join(
            f"pods {' and '.join(pod.title for pod in pods)} both hold {i}: delete one" for i, pods in lasting
        )

    @property
    def advertised(self) -> bool:
        """Everything that is advertised is allocatable and schedulable."""
        advertised = self.work.advertised
        return not advertised.message and all(stage.schedulable for stage in advertised.confirmation.stages.values())

    def of_state(self, *states: GpuState) -> list[GpuOutcome]:
        """GPUs of the plan only."""
        return [outcome for outcome in self.outcomes if outcome.managed and outcome.state in states]


def fault(gpu: ObservedGpu) -> str:
    """What is wrong with it; empty where the driver reads it and reports no fault."""
    return gpu.problem or (gpu.health_message if gpu.health is Health.UNHEALTHY else "")

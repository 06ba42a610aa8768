"""The first stage of a pass: observes everything that is known of this node now, as one frozen value.

Reads the latest plan and Node, the plugin's files, the kubelet and the driver, and returns an `Observation`. The order
of reading is part of the safety: first what the plugin has in force, then the witnesses of use (see
`observed.witnesses`), then the driver. Never changes anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from crds.v1alpha1.names import Condition, Reason
from nodeagent.cache import NodeCache
from nodeagent.desired.plan import ObservedPlan
from nodeagent.handover.config import DeviceKind, Loaded, PluginConfig
from nodeagent.handover.mps_state import MpsState
from nodeagent.hardware.driver import DriverClosedError, DriverError, GpuProcess, ObservedGpu
from nodeagent.hardware.partitions import Partition, existing
from nodeagent.hardware.reading import HardwareReader
from nodeagent.observed.claims import located
from nodeagent.observed.fresh import FreshPods, caught_up
from nodeagent.observed.kubelet import Allocatable, Listed, NoAnswer
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pods import ObservedPods
from nodeagent.observed.rivals import rival
from nodeagent.observed.usage import Usage, Use, Verdict, judge, out_of_step, with_processes
from nodeagent.observed.witnesses import Witnessed, Witnesses
from nodeagent.steps.journal import Journal
from nodeagent.steps.judged import JudgedGpu
from partitioning.layouts import Instance

VAIN_SECONDS = 30.0
"""Between two questions of which the first was of no help. Older API servers read all pods of the cluster for one."""


class PluginReader(Protocol):
    """What a pass reads of the device plugin; see `advertise.config_file.ConfigFile`."""

    config: PluginConfig
    """The last one that was written."""

    def loaded(self) -> Loaded | None: ...

    def mps(self) -> MpsState | None: ...

    def in_force(self, loaded: Loaded | None) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What one pass read about the advertised devices."""

    config: PluginConfig
    """The last one that was written for the plugin."""
    loaded: Loaded | None
    in_force: bool
    """The plugin loaded exactly `config`."""
    allocatable: Allocatable | NoAnswer
    node: ObservedNode | None
    mps: MpsState | None = None
    """What the supervisor of MPS daemons reports; None where it does not run."""

    slices: frozenset[str] = field(init=False, repr=False, compare=False)
    """Ids of our MPS slices."""

    def __post_init__(self) -> None:
        mine = frozenset(device.id for device in self.config.devices if device.kind is DeviceKind.MPS)
        object.__setattr__(self, "slices", mine)

    @property
    def needs_daemons(self) -> bool | None:
        """Whether this node must keep its MPS daemons; None where it is not known."""
        if self.slices:
            return True
        if self.mps is None or not self.in_force:
            return None
        return bool(self.mps.daemons or self.mps.leftover)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One moment of the node."""

    plan: ObservedPlan | None
    witnessed: Witnessed
    readings: Readings
    usage: Usage
    """As witnessed, with the UUIDs of claimed devices."""
    gpus: tuple[ObservedGpu, ...]
    driver_version: str
    driver_problem: DriverError | None
    """The driver as a whole does not answer: the GPUs are those of the last good observation, each with a problem."""
    processes: Mapping[str, tuple[GpuProcess, ...] | str]
    """By GPU UUID; a text says why they could not be read."""
    kept: frozenset[str] = frozenset()
    """GPUs whose reading is an earlier one, by UUID."""
    unfinished: Mapping[str, frozenset[Instance]] = field(default_factory=dict)
    """Placements at which this agent was interrupted, by GPU UUID."""
    disabled: bool = False
    """The node is not enabled any more: no pod is to get a device, until it is enabled again or the process ends."""
    rival: str = ""
    """Why our device plugin may not serve this node: another one does. A sentence for people."""

    @property
    def pods(self) -> ObservedPods:
        return self.witnessed.pods

    @property
    def driver_closed(self) -> bool:
        """By the agent itself, so that the driver can be replaced."""
        return isinstance(self.driver_problem, DriverClosedError)

    @property
    def reopens(self) -> bool:
        """No label has it closed any more: the status says so first."""
        node = self.readings.node
        return self.driver_closed and node is not None and not node.closes_driver

    @property
    def closed_reason(self) -> Reason:
        """For whom."""
        node = self.readings.node
        upgrade = node is not None and node.driver_unloads and not node.held_off
        return Reason.DRIVER_UPGRADE if upgrade else Reason.DRIVER_CLOSED

    def verdict(self, partition: Partition, gpu: ObservedGpu) -> Verdict:
        """The verdict of all witnesses on one partition."""
        verdict = self.usage.of(partition, self.readings.slices)
        processes = self.processes.get(gpu.uuid, "the processes on this GPU were not read")
        if isinstance(processes, str):
            return Verdict(use=Use.UNKNOWN, why=processes) if verdict.free else verdict
        return with_processes(verdict, partition, gpu, processes, self.usage.held)

    def occupied(self, config: PluginConfig) -> set[str]:
        """Ids on which a process of a pod is left that is gone, or may be; they stay so until that pod's end."""
        before = set(self.readings.config.occupied)
        ends, lost = self.witnessed.ends, self.witnessed.lost
        if not (ends.unread or lost):
            before &= (ends.pending.keys() | self.usage.doubtful.keys()) - ends.new
        living = self.usage.held.keys() - ends.pending.keys()
        any_other = {d.id for d in config.devices} - living if lost and ends.stray else ()
        return before.union(self.usage.left, any_other)

    def judge(self, gpu: ObservedGpu) -> JudgedGpu:
        """One GPU with verdicts."""
        config = self.readings.config
        partitions = existing(gpu, config, self.usage.held)
        withdrawn = frozenset(config.withdrawn)
        return JudgedGpu(
            gpu=gpu,
            partitions=partitions,
            verdict=lambda partition: self.verdict(partition, gpu),
            withdrawn=withdrawn,
            released=frozenset(p.id for p in partitions if p.id in withdrawn and self._released(p, gpu)),
            unfinished=self.unfinished.get(gpu.uuid, frozenset()),
        )

    def _released(self, partition: Partition, gpu: ObservedGpu) -> bool:
        """Refused by the plugin, gone from the kubelet's list, and free by every witness read after that."""
        allocatable = self.readings.allocatable
        return (
            self.readings.in_force
            and isinstance(allocatable, Allocatable)
            and not any(partition.id in ids for ids in allocatable.ids.values())
            and self.verdict(partition, gpu).free
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Reads everything."""

    cache: NodeCache
    plugin: PluginReader
    witnesses: Witnesses
    hardware: HardwareReader
    journal: Journal
    fresh: FreshPods
    clock: Callable[[], float]
    _vain: dict[str, float] = field(default_factory=dict, init=False)
    """When the API server's answer was of no help, by what is not known."""

    def observe(self) -> Observation:
        """Read everything, in the order that the module's docstring gives."""
        plan, loaded = self.cache.plan.get(), self.plugin.loaded()
        found = self.witnesses.read(self.cache.pods)
        node, plugin = self.cache.node.get(), found.pods.device_plugin
        hardware = self.hardware.read(closed_for=self._closed_for(plan, node))
        return Observation(
            plan=plan,
            witnessed=found,
            readings=Readings(
                config=self.plugin.config,
                loaded=loaded,
                in_force=self.plugin.in_force(loaded),
                allocatable=found.allocatable,
                node=node,
                mps=self.plugin.mps(),
            ),
            disabled=self._disabled(plan, node),
            rival=rival(plugin.title if plugin is not None else "", found.rival_sockets, found.pods.dra_driver),
            usage=located(found.usage, hardware.gpus),
            gpus=hardware.gpus,
            driver_version=hardware.driver_version,
            driver_problem=hardware.problem,
            kept=hardware.kept,
            processes=_processes(hardware.gpus, found.hidden_processes),
            unfinished={gpu.uuid: self.journal.settle(gpu) for gpu in hardware.gpus},
        )

    def _closed_for(self, plan: ObservedPlan | None, node: ObservedNode | None) -> str:
        """Why the driver is closed. A client that reads DriverReleased=True acts on it, so the status changes first,
        also from False: an agent that has ended may have sent True last. It is also what is known of a label that
        cannot be read."""
        said = plan.says(Condition.DRIVER_RELEASED) if plan is not None else ""
        if node is None:
            return "this Node was not read, and had it closed" if said or self.hardware.closed else ""
        unsure = self.hardware.closed and plan is not None and plan.unanswered
        return node.closes_driver or ("the status may say that it is released" if unsure or said else "")

    def _disabled(self, plan: ObservedPlan | None, node: ObservedNode | None) -> bool:
        """Also after the controller's label is gone, until this process is ended: what was reported must stay true.

        A node to which another label brought the agent was never enabled, and is not disabled either.
        """
        handed_back = plan is not None and plan.handed_back
        return node is not None and node.enablement_ended and (self.cache.was_ours or handed_back)

    def catch_up(self, observation: Observation) -> Observation:
        """The same with the API server's own answer, where a watch that is late is all that hides what is in use."""
        found = observation.witnessed
        blind = found.usage.blind
        in_vain = self.clock() - self._vain.get(blind, float("-inf")) < VAIN_SECONDS
        if in_vain or not isinstance(found.listed, Listed) or blind != out_of_step(found.pods, found.listed):
            return observation
        fresh = self.fresh()
        if isinstance(fresh, NoAnswer):
            return observation
        usage = judge(caught_up(found.pods, fresh), found.listed, found.usage)
        self._vain.clear()
        if usage.blind:
            self._vain[blind] = self.clock()
            return observation
        return replace(observation, usage=located(usage, observation.gpus))

    def observe_hardware(self, observation: Observation) -> Observation:
        """The same with the hardware read again: before it is changed, and after."""
        hardware = self.hardware.read(afresh=True)
        return replace(
            observation,
            gpus=hardware.gpus,
            driver_problem=hardware.problem,
            kept=hardware.kept,
            processes=_processes(hardware.gpus, observation.witnessed.hidden_processes),
        )


def _processes(gpus: Iterable[ObservedGpu], hidden: str) -> Mapping[str, tuple[GpuProcess, ...] | str]:
    # An empty list of processes that cannot be seen would count as proof that none is there.
    return {gpu.uuid: hidden or gpu.processes for gpu in gpus if not gpu.problem}

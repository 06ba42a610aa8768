"""The first stage of a pass: observes everything that is known of this node now, as one frozen value.

Reads the latest plan and Node, the kubelet, the plugin's files and the driver, and returns an `Observation`. The order
of reading is part of the safety: first what the plugin has in force, then which ids the kubelet still has, then which
were handed out, then which pods hold them. So an id that is gone from the kubelet's list cannot have got a holder that
the later answers miss. Never changes anything but its memory of the last GPUs that could be read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kube.change_log import ChangeLog
from kube.latest import LatestVersion
from nodeagent.advertise.advertiser import Advertiser
from nodeagent.advertise.confirm import Readings
from nodeagent.advertise.rivals import rival
from nodeagent.desired.plan import ObservedPlan
from nodeagent.handover.config import PluginConfig, PluginFiles, read_ledger
from nodeagent.handover.files import Unreadable
from nodeagent.hardware.driver import DriverError, GpuDriver, GpuProcess, ObservedGpu
from nodeagent.hardware.partitions import Partition, existing
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import Allocatable, CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pods import ObservedPods, PodBook
from nodeagent.observed.usage import Usage, Use, Verdict, judge, with_processes
from nodeagent.steps.changes import JudgedGpu
from nodeagent.steps.journal import Journal
from partitioning.layouts import Instance

log = logging.getLogger(__name__)


class KubeletReader(Protocol):
    """What a pass reads from the kubelet; see `kubelet.Kubelet`."""

    def listed(self) -> Listed | NoAnswer: ...

    def allocatable(self) -> Allocatable | NoAnswer: ...

    def checkpoint(self) -> tuple[CheckpointEntry, ...]: ...

    def rival_sockets(self) -> tuple[str, ...]: ...

    def seconds_since_start(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One moment of the node."""

    plan: ObservedPlan | None
    pods: ObservedPods
    readings: Readings
    usage: Usage
    gpus: tuple[ObservedGpu, ...]
    driver_version: str
    driver_problem: DriverError | None
    """The driver as a whole does not answer: the GPUs are those of the last good observation, each with a problem."""
    processes: Mapping[str, tuple[GpuProcess, ...] | str]
    """By GPU UUID; a text says why they could not be read."""
    unfinished: Mapping[str, frozenset[Instance]] = field(default_factory=dict)
    """Placements at which this agent was interrupted, by GPU UUID."""
    rival: str = ""
    """Why our device plugin may not serve this node: another one does. A sentence for people."""
    believed_in_seconds: float | None = None
    """Until the List of a kubelet that has just started is believed."""

    def verdict(self, partition: Partition, gpu: ObservedGpu) -> Verdict:
        """The verdict of all witnesses on one partition."""
        verdict = self.usage.of(partition)
        processes = self.processes.get(gpu.uuid, "the processes on this GPU were not read")
        if isinstance(processes, str):
            return Verdict(use=Use.UNKNOWN, why=processes) if verdict.free else verdict
        return with_processes(verdict, partition, gpu, processes, self.usage.held)

    def judge(self, gpu: ObservedGpu, config: PluginConfig) -> JudgedGpu:
        """One GPU with verdicts; `config` is the last one written for the plugin."""
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


@dataclass(slots=True, kw_only=True)
class Observer:
    """Reads everything; remembers only the last GPUs that could be read."""

    plan: LatestVersion[ObservedPlan]
    node: LatestVersion[ObservedNode]
    pods: PodBook
    kubelet: KubeletReader
    driver: GpuDriver
    files: PluginFiles
    advertiser: Advertiser
    holdings: Holdings
    journal: Journal
    kubelet_start_seconds: float
    driver_problem: DriverError | None = field(default=None, init=False)
    """Of the last observation."""
    _gpus: tuple[ObservedGpu, ...] = field(default=(), init=False)
    _driver_version: str = field(default="", init=False)
    _change_log: ChangeLog = field(default_factory=lambda: ChangeLog(log), init=False)

    def observe(self) -> Observation:
        """Read everything, in the order that the module's docstring gives."""
        plan, loaded = self.plan.get(), self.advertiser.loaded()
        allocatable = self.kubelet.allocatable()
        allocations = read_ledger(self.files) or ()
        unusable = f"the device plugin's {allocations}" if isinstance(allocations, Unreadable) else ""
        kubelet_seconds = self.kubelet.seconds_since_start()
        # After the ledger: one that was put aside before that was read shows now.
        unusable = unusable or self.holdings.lost(self.files.lost_ledger)
        too_early = self._too_early(kubelet_seconds) or unusable
        listed = self.kubelet.listed()
        checkpoint = self.kubelet.checkpoint()
        pods = self.pods.observed()
        handed_out = () if isinstance(allocations, Unreadable) else allocations
        votes = self.holdings.votes(pods, listed, handed_out, checkpoint)
        too_early = too_early or self.holdings.problem
        gpus, problem = self._observed()
        return Observation(
            plan=plan,
            pods=pods,
            readings=Readings(
                config=self.advertiser.config,
                loaded=loaded,
                in_force=self.advertiser.in_force(loaded),
                allocatable=allocatable,
                node=self.node.get(),
            ),
            rival=rival(pods.device_plugin, self.kubelet.rival_sockets()),
            usage=judge(pods, listed, votes, too_early=too_early),
            gpus=gpus,
            driver_version=self._driver_version,
            driver_problem=problem,
            processes=self.driver.processes_of(gpu for gpu in gpus if not gpu.problem),
            unfinished={gpu.uuid: self.journal.settle(gpu) for gpu in gpus},
            believed_in_seconds=self.kubelet_start_seconds - kubelet_seconds if kubelet_seconds is not None else None,
        )

    def observe_hardware(self, observation: Observation) -> Observation:
        """The same with the hardware read again, after it was changed."""
        gpus, problem = self._observed()
        return replace(observation, gpus=gpus, driver_problem=problem)

    def _observed(self) -> tuple[tuple[ObservedGpu, ...], DriverError | None]:
        try:
            self._driver_version = self._driver_version or self.driver.version()
            self._gpus = self.driver.observe()
        except DriverError as error:
            self._change_log.warn(f"driver: {error}")
            self._driver_version = ""  # a different one may come back
            self.driver_problem = error
            return tuple(replace(gpu, problem=str(error), instances=()) for gpu in self._gpus), error
        self._change_log.warn("")
        self.driver_problem = None
        return self._gpus, None

    def _too_early(self, seconds: float | None) -> str:
        if seconds is None:
            return "the kubelet does not serve pod-resources"
        if seconds < self.kubelet_start_seconds:
            # Not how long ago: a sentence that changes every second would be a status write every second.
            return f"the kubelet started just now, and what it lists is believed after {self.kubelet_start_seconds:g} s"
        return ""

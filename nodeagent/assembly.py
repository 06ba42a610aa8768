"""Assembles the stages of a pass into an agent.

Takes the parts that reach outside of the process, which differ between a real node and a simulated one, and the
settings. The agent's process, the tests' node and the load benchmark call it, so that all of them run the same agent.
Must never start, read or write anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nodeagent.advertise.advertiser import Advertiser
from nodeagent.advertise.config_file import ConfigFile
from nodeagent.advertise.confirm import Confirmer
from nodeagent.advertise.counts_right import CountsRight
from nodeagent.advertise.delivery import ContainerDelivery
from nodeagent.advertise.free_marks import FreeMarks
from nodeagent.advertise.taint import NodeGuard, NodeWriting
from nodeagent.agent import Agent, Pacing
from nodeagent.cache import NodeCache
from nodeagent.cdi.device_numbers import numbers_of, read_device_numbers
from nodeagent.desired.items import DesiredItems, desired_items
from nodeagent.hardware.driver import GpuDriver
from nodeagent.hardware.gpu_ids import GpuResources
from nodeagent.hardware.reading import HardwareReader
from nodeagent.nvidia.backend import NvidiaBackend
from nodeagent.nvidia.node_files import NodeFiles
from nodeagent.nvidia.own_plugin import OwnPlugin
from nodeagent.nvidia.signals import SendSighup
from nodeagent.nvidia.switch import Switch
from nodeagent.observation import Observation, Observer
from nodeagent.observed.ends import EndBook, ProcessReader
from nodeagent.observed.fresh import FreshPods
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.witnesses import KubeletReader, Witnesses
from nodeagent.outcome.driver_clients import DriverClients
from nodeagent.outcome.outcomes import Outcomes
from nodeagent.own_backend import OwnBackend
from nodeagent.report.reporter import Reporter
from nodeagent.settings import Settings
from nodeagent.statedir import StateDir
from nodeagent.steps.actuator import Actuator
from nodeagent.steps.compute_modes import ComputeModes
from nodeagent.steps.confirmations import Confirmations
from nodeagent.steps.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What reaches outside of the process: driver, kubelet, files, API and clock."""

    state: StateDir
    cache: NodeCache
    driver: GpuDriver
    kubelet: KubeletReader
    file: ConfigFile
    journal: Journal
    holdings: Holdings
    processes: ProcessReader
    fresh_pods: FreshPods
    node: NodeWriting
    delivery: ContainerDelivery
    reporter: Reporter
    clock: Callable[[], float]
    sighup: SendSighup = lambda _pod_uid, _program: "this agent signals no process"
    """Used where NVIDIA's device plugin is the backend."""
    stopping: Callable[[], bool] = lambda: False
    """True once the process is to end."""


def assemble(parts: Parts, settings: Settings) -> Agent:
    """The agent of one node."""
    clock, cache, driver, file, journal = parts.clock, parts.cache, parts.driver, parts.file, parts.journal
    hardware = HardwareReader(driver, clock)
    right = CountsRight(parts.node.ask_policy, wanted=settings.write_allocatable, clock=clock)
    guard = NodeGuard(parts.node, right, parts.state.taint, clock=clock)
    modes = ComputeModes(driver, parts.state.compute_modes, exclusive=settings.mps_exclusive_process)
    confirmer = Confirmer(
        clock=clock,
        loaded_deadline_seconds=settings.loaded_deadline_seconds,
        allocatable_deadline_seconds=settings.allocatable_deadline_seconds,
    )
    observer = Observer(
        cache=cache,
        plugin=file,
        witnesses=Witnesses(
            kubelet=parts.kubelet,
            holdings=parts.holdings,
            files=parts.state.plugin,
            ends=EndBook(
                processes=parts.processes,
                fresh=parts.fresh_pods,
                numbers=lambda ids: numbers_of(ids, hardware.gpus, read_device_numbers(settings.proc_dir)),
                clock=clock,
                slack_seconds=settings.release_slack_seconds,
            ),
            kubelet_start_seconds=settings.kubelet_start_seconds,
            resources=GpuResources(settings.gpu_resources),
        ),
        hardware=hardware,
        journal=journal,
        fresh=parts.fresh_pods,
        clock=clock,
    )
    actuator = Actuator(driver, journal, clock=clock, stopping=parts.stopping, forget=parts.delivery.forget)
    advertiser = Advertiser(file, guard, confirmer, cache.node, parts.delivery, modes=modes, clock=clock)
    desired = partial(_desired, settings)
    return Agent(
        observer=observer,
        actuator=actuator,
        advertiser=advertiser,
        free_marks=FreeMarks(parts.state.plugin),
        confirmations=Confirmations(),
        outcomes=Outcomes(clock),
        reporter=parts.reporter,
        clients=DriverClients(settings.proc_dir),
        pacing=Pacing(clock, resync_seconds=settings.resync_seconds),
        desired=desired,
        own=OwnBackend(observer=observer, actuator=actuator, advertiser=advertiser, desired=desired),
        nvidia=_nvidia(parts, guard, modes, settings),
    )


def _desired(settings: Settings, observation: Observation) -> DesiredItems:
    return desired_items(
        observation.plan,
        observation.gpus,
        driver_version=observation.driver_version,
        disabled=observation.disabled,
        drives_nvidia=settings.nvidia_backend,
        replicas_before_volta=settings.mps_replicas_before_volta,
    )


def _nvidia(parts: Parts, guard: NodeGuard, modes: ComputeModes, settings: Settings) -> NvidiaBackend:
    files = NodeFiles(settings.kubelet_dir, settings.nvidia_mps_root)
    return NvidiaBackend(
        OwnPlugin(parts.file, guard, modes, clock=parts.clock, deadline_seconds=settings.loaded_deadline_seconds),
        guard,
        Switch(files, guard, parts.state.nvidia_switch, sighup=parts.sighup, clock=parts.clock),
    )

"""Runs the agent of one node: watches, heartbeat, HTTP, and the loop that makes passes.

Takes a node's name, settings, a client and a driver; several agents fit in one process. Watches and inotify only wake
the loop: every pass observes everything again. Takes the node's lock first, and stops only between two steps on a GPU.
"""

import logging
import os
import threading
import time
from functools import partial
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names, paths
from kube.budget import RequestBudget
from kube.clients import Client
from kube.events import EventRecorder
from kube.leases import Heartbeat
from kube.reflector import Reflector
from kube.serve import Server, check_page, metrics_page
from kube.telemetry import PlumbingGauges, RequestMetrics
from kube.timestamps import api_time
from nodeagent.advertise.config_file import ConfigFile
from nodeagent.advertise.delivery import ContainerDelivery
from nodeagent.advertise.node_writer import NodeWriter
from nodeagent.agent import Agent
from nodeagent.assembly import Parts, assemble
from nodeagent.cache import NodeCache
from nodeagent.cdi.host_devices import HostDevices
from nodeagent.cdi.publisher import SpecificationPublisher
from nodeagent.cdi.runtime_support import CONFIGS, read_containerd
from nodeagent.desired.plan import parse_plan
from nodeagent.handover.config import DeviceListStrategy
from nodeagent.handover.files import boot_id
from nodeagent.handover.watch import DirectoryWatches
from nodeagent.hardware.driver import GpuDriver
from nodeagent.hardware.driver_loss import DriverLoss
from nodeagent.hardware.driver_thread import ThreadedDriver
from nodeagent.hardware.gpu_ids import GpuResources
from nodeagent.health import AgentHealth, Passes
from nodeagent.nvidia.sighup import Sighup
from nodeagent.observed.fresh import fresh_pods
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import Kubelet
from nodeagent.observed.node import parse_node
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import parse_pod
from nodeagent.observed.processes import Processes
from nodeagent.report.metrics import AgentMetrics
from nodeagent.report.publish import StatusFailures, StatusWriter
from nodeagent.report.reporter import Reporter
from nodeagent.settings import Settings
from nodeagent.statedir import StateDir
from nodeagent.steps.journal import Journal
from partitioning import __version__

log = logging.getLogger(__name__)
LEAST_PAUSE_SECONDS = 0.1
"""A burst of events is one pass."""
FAILED_PAUSE_SECONDS = 5.0
NODE_SECONDS = 30.0
"""For so long after the plan was read the first pass waits for the Node, whose label may have the driver closed."""
PLAN, NODE, PODS = "the plan", "this node", "pods"
"""What the watches read, as the readiness page names it."""


class AgentProcess:
    """`start`, then `run` until `stop`; `close` at the end."""

    def __init__(self, node_name: str, settings: Settings, api: ApiClient, driver: GpuDriver) -> None:
        self._node_name, self._settings, self._api = node_name, settings, api
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._node_due_at = time.monotonic() + NODE_SECONDS
        self._state = StateDir(settings.state_dir)
        self._lock = self._state.lock()
        self._passes, self._driver_loss = Passes(time.monotonic), DriverLoss(time.monotonic)
        self._cache = NodeCache(PodBook(clock=time.monotonic), wake=self._wake.set)
        self._driver = ThreadedDriver(driver, timeout_seconds=settings.driver_timeout_seconds)
        self._kubelet = Kubelet(
            settings.kubelet_dir,
            clock=time.monotonic,
            wall_clock=time.time,
            resources=GpuResources(settings.gpu_resources),
            host=settings.proc_dir / "1" / "root",
        )
        self._events = EventRecorder(api, names.AGENT_MANAGER, instance=node_name)
        self._budget, self._failures = RequestBudget(), StatusFailures()
        self.heartbeat = self._build_heartbeat()
        self.metrics = AgentMetrics(__version__, clock=time.monotonic, name_pods=settings.pod_metrics)
        self.metrics.status_failures.set_function(lambda: self._failures.count)
        self.metrics.heartbeat_age.set_function(self.heartbeat.age_seconds)
        self._agent = self._build_agent()
        self._watches = self._build_watches()
        self._export_plumbing(api)
        self._files, self._projections = DirectoryWatches(self._wake.set), DirectoryWatches(self._wake.set)
        self.health = AgentHealth(self._passes, self._driver, self._watches, needed=PLAN)
        self.server = Server(
            settings.metrics_address,
            settings.metrics_port,
            {
                "/metrics": metrics_page(self.metrics.registry),
                "/healthz": check_page(self.health.problems),
                "/readyz": check_page(self.health.unready),
            },
        )

    def _export_plumbing(self, api: ApiClient) -> None:
        if isinstance(api, Client):
            api.answered = RequestMetrics(self.metrics.registry).answered
        watches = self._watches.values()
        stale = PlumbingGauges(self._events, lambda: {watch.path: watch.stale_seconds() for watch in watches})
        self.metrics.registry.register(stale)

    def _build_heartbeat(self) -> Heartbeat:
        renew_seconds = self._settings.heartbeat_seconds
        return Heartbeat(
            self._api,
            namespace=self._settings.namespace,
            name=names.agent_lease(self._node_name),
            identity=self._node_name,
            manager=names.AGENT_MANAGER,
            lease_seconds=4 * renew_seconds,
            renew_seconds=renew_seconds,
            before=self._passes.check,
            annotations=self._failures.annotations,
        )

    def _build_watches(self) -> dict[str, Reflector[Any]]:
        api, cache, name = self._api, self._cache, self._node_name
        own, bound = {"fieldSelector": f"metadata.name={name}"}, {"fieldSelector": f"spec.nodeName={name}"}
        pods = partial(parse_pod, resources=GpuResources(self._settings.gpu_resources))
        return {
            PLAN: Reflector(api, paths.PLANS, params=own, project=parse_plan, on_change=cache.on_plan),
            NODE: Reflector(api, paths.NODES, params=own, project=parse_node, on_change=cache.on_node),
            PODS: Reflector(api, paths.PODS, params=bound, project=pods, on_change=cache.on_pod),
        }

    def _build_agent(self) -> Agent:
        settings, clock, state = self._settings, time.monotonic, self._state
        return assemble(
            Parts(
                state=state,
                cache=self._cache,
                driver=self._driver,
                kubelet=self._kubelet,
                file=ConfigFile(state.plugin, boot_id=boot_id()),
                journal=Journal(state.journal),
                holdings=Holdings(
                    state.holdings, clock=clock, slack_seconds=settings.release_slack_seconds, boot_id=boot_id()
                ),
                processes=Processes(settings.proc_dir),
                fresh_pods=lambda: fresh_pods(
                    self._api, self._node_name, self._budget, GpuResources(settings.gpu_resources)
                ),
                node=NodeWriter(self._api, self._node_name, self._cache.node, self._budget, clock=clock),
                delivery=self._build_delivery(),
                reporter=self._build_reporter(),
                clock=clock,
                sighup=Sighup(settings.proc_dir),
                stopping=self._stopping.is_set,
            ),
            settings,
        )

    def _build_delivery(self) -> ContainerDelivery:
        settings = self._settings
        folders, config = settings.cdi_spec_dirs, settings.containerd_config
        return ContainerDelivery(
            SpecificationPublisher(
                folders[-1], proc=settings.proc_dir, folders=folders, read_only_pipes=settings.mps_read_only_pipes
            ),
            strategy=DeviceListStrategy(settings.device_list_strategy),
            containerd=partial(read_containerd, settings.proc_dir / "1/root", (config,) if config else CONFIGS),
            host_devices=HostDevices(folders[-1], proc=settings.proc_dir) if settings.refresh_host_devices else None,
            clock=time.monotonic,
        )

    def _build_reporter(self) -> Reporter:
        status = StatusWriter(
            self._api,
            self._node_name,
            self._cache.plan,
            self._budget,
            beats=self.heartbeat,
            failures=self._failures,
            clock=time.monotonic,
            interval_seconds=self._settings.status_interval_seconds,
        )
        return Reporter(
            write=status.write,
            emit=self._events.emit,
            metrics=self.metrics,
            clock=time.monotonic,
            now=api_time,
            version=__version__,
        )

    def start(self) -> None:
        self._events.start()
        self.heartbeat.start()
        self.server.start()
        for watch in self._watches.values():
            watch.start()
        self._files.follow(self._state.plugin.directory)

    def run(self) -> str:
        """Make passes until `stop`. Returns why this process cannot continue, where a new one can; else nothing."""
        ended_by = ""
        while not self._stopping.is_set():
            due_seconds, ended_by = self._pass()
            if ended_by:
                log.error("%s", ended_by)
                break
            self._stopping.wait(LEAST_PAUSE_SECONDS)
            self._wake.wait(due_seconds)
            self._wake.clear()
        return ended_by

    def stop(self) -> None:
        """From any thread but in no signal handler: make `run` return after the current step."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        self._files.follow()
        self._projections.follow()
        self.heartbeat.stop()
        self._events.stop()
        self.server.stop()
        if not self._driver.close():
            # No other agent may start on top of a call that still runs: what the interpreter does not know of keeps the
            # lock until the process has ended.
            os.dup(self._lock.fileno())
        self._lock.close()

    def _pass(self) -> tuple[float, str]:
        """The seconds until the next one is due, and why there can be none in this process."""
        # Before the plan was read, "no plan" would be believed and every GPU counted as unmanaged.
        if not self._watches[PLAN].synced.is_set():
            self._node_due_at = time.monotonic() + NODE_SECONDS
            return LEAST_PAUSE_SECONDS, ""
        if not self._watches[NODE].synced.is_set() and time.monotonic() < self._node_due_at:
            return LEAST_PAUSE_SECONDS, ""
        if self._watches[PODS].synced.is_set():
            self._cache.pods.set_synced()
        self._files.follow(self._state.plugin.directory)
        self._budget.renew()
        started = time.monotonic()
        try:
            ended = self._agent.reconcile()
        except Exception as error:  # noqa: BLE001 - the next pass may work, whatever this was; it is logged
            self._passes.fail(error)
            self.metrics.error("pass")
            return FAILED_PAUSE_SECONDS, ""
        self._projections.follow(*ended.projections)
        self._passes.complete()
        # After a pause longer than SILENT_SECONDS the heartbeat was held back: this pass is what it waited for.
        self.heartbeat.retry_now()
        self.metrics.passes.observe(time.monotonic() - started)
        return ended.due_seconds, self._driver_loss.note(ended.driver_problem)

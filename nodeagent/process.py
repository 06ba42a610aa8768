"""Runs the agent of one node: watches, heartbeat, HTTP, and the loop that makes passes.

Takes a node's name, settings, a client and a driver; several agents fit in one process. Watches and inotify only wake
the loop: every pass observes everything again. Takes the node's lock first, and stops only between two steps on a GPU.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube.budget import RequestBudget
from kube.events import EventRecorder
from kube.leases import Heartbeat
from kube.reflector import Reflector
from kube.serve import Server, check_page, metrics_page
from nodeagent.advertise.advertiser import Advertiser
from nodeagent.advertise.config_file import ConfigFile
from nodeagent.advertise.confirm import Confirmer
from nodeagent.advertise.taint import NodeGuard, NodeWriter
from nodeagent.agent import Agent, Pacing
from nodeagent.cache import NodeCache
from nodeagent.desired.plan import parse_plan
from nodeagent.handover.boot import boot_id
from nodeagent.handover.watch import DirectoryWatch
from nodeagent.hardware.driver import GpuDriver
from nodeagent.hardware.driver_loss import DriverLoss
from nodeagent.hardware.driver_thread import ThreadedDriver
from nodeagent.hardware.reading import HardwareReader
from nodeagent.observation import Observer
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import Kubelet
from nodeagent.observed.node import parse_node
from nodeagent.observed.pods import PodBook, parse_pod
from nodeagent.observed.witnesses import Witnesses
from nodeagent.report.metrics import AgentMetrics
from nodeagent.report.outcomes import Outcomes
from nodeagent.report.publish import StatusWriter
from nodeagent.report.reporter import Reporter
from nodeagent.report.status import AgentFacts
from nodeagent.settings import Settings
from nodeagent.statedir import StateDir
from nodeagent.steps.actuator import Actuator
from nodeagent.steps.confirmations import Confirmations
from nodeagent.steps.journal import Journal
from partitioning import __version__

log = logging.getLogger(__name__)
LEAST_PAUSE_SECONDS = 0.1
"""A burst of events is one pass."""
FAILED_PAUSE_SECONDS = 5.0
STUCK_SECONDS = 600.0
"""A pass, or a driver call, that takes longer hangs: the health page reports it."""
SILENT_SECONDS = 60.0
"""An agent that completes no pass does not keep the status true: then it must not seem alive."""


class NoPassError(Exception):
    """No pass completes, so a heartbeat would wrongly promise that the status is kept true."""


class AgentProcess:
    """`start`, then `run` until `stop`; `close` at the end."""

    def __init__(self, node_name: str, settings: Settings, api: ApiClient, driver: GpuDriver) -> None:
        self._node_name, self._settings, self._api = node_name, settings, api
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._passed_at, self._passes, self._failure = time.monotonic(), 0, ""
        self._driver_loss, self.ended_by = DriverLoss(time.monotonic), ""
        """Why `run` returned without `stop`: this process cannot continue, and a new one can."""
        self._state = StateDir(settings.state_dir)
        self._lock = self._state.lock()
        pods = PodBook(clock=time.monotonic, slack_seconds=settings.release_slack_seconds)
        self._cache = NodeCache(pods, wake=self._wake.set)
        self._driver = ThreadedDriver(driver, timeout_seconds=settings.driver_timeout_seconds)
        self._kubelet = Kubelet(settings.kubelet_dir, clock=time.monotonic, wall_clock=time.time)
        self.metrics = AgentMetrics(node_name, __version__)
        self._events = EventRecorder(api, names.AGENT_MANAGER, instance=node_name)
        self._heartbeat = self._build_heartbeat()
        self._budget = RequestBudget()
        self._status = StatusWriter(
            api,
            node_name,
            self._cache.plan,
            self._heartbeat,
            self._budget,
            clock=time.monotonic,
            interval_seconds=settings.status_interval_seconds,
        )
        self.metrics.watch_status(lambda: self._status.failures)
        self.metrics.watch_heartbeat(self._heartbeat.age_seconds)
        self._agent = self._build_agent()
        plans = f"/apis/{names.API_VERSION}/{names.PLURAL}"
        own = {"fieldSelector": f"metadata.name={node_name}"}
        bound = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._plans = Reflector(api, plans, params=own, project=parse_plan, on_change=self._cache.on_plan)
        self._bound = Reflector(api, "/api/v1/pods", params=bound, project=parse_pod, on_change=self._cache.on_pod)
        self._watches: dict[str, Reflector[Any]] = {
            "the plan": self._plans,
            "this node": Reflector(api, "/api/v1/nodes", params=own, project=parse_node, on_change=self._cache.on_node),
            "pods": self._bound,
        }
        self._files = DirectoryWatch(self._state.plugin.directory, self._wake.set)
        self.server = self._build_server()

    def _build_server(self) -> Server:
        return Server(
            self._settings.metrics_address,
            self._settings.metrics_port,
            {
                "/metrics": metrics_page(self.metrics.registry),
                "/healthz": check_page(self._health),
                "/readyz": check_page(self._readiness),
            },
        )

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
            before=self._check_passes,
            annotations=self._lease_annotations,
        )

    def _lease_annotations(self) -> dict[str, str]:
        problem = self._status.problem
        return {names.ANNOTATION_STATUS_PROBLEM: problem} if problem else {}

    def _build_agent(self) -> Agent:
        settings, clock, cache, state = self._settings, time.monotonic, self._cache, self._state
        journal, file = Journal(state.journal), ConfigFile(state.plugin, boot_id=boot_id())
        holdings = Holdings(state.holdings, clock=clock, slack_seconds=settings.release_slack_seconds)
        guard = NodeGuard(
            NodeWriter(self._api, self._node_name, cache.node, self._budget),
            write_allocatable=settings.write_allocatable,
        )
        confirmer = Confirmer(
            clock=clock,
            loaded_deadline_seconds=settings.loaded_deadline_seconds,
            allocatable_deadline_seconds=settings.allocatable_deadline_seconds,
        )
        return Agent(
            observer=Observer(
                cache=cache,
                plugin=file,
                witnesses=Witnesses(
                    self._kubelet, holdings, state.plugin, kubelet_start_seconds=settings.kubelet_start_seconds
                ),
                hardware=HardwareReader(self._driver),
                journal=journal,
            ),
            actuator=Actuator(self._driver, journal, clock=clock, stopping=self._stopping.is_set),
            advertiser=Advertiser(file, guard, confirmer, cache.node, clock=clock),
            confirmations=Confirmations(),
            outcomes=Outcomes(clock),
            reporter=self._build_reporter(),
            pacing=Pacing(clock, resync_seconds=settings.resync_seconds),
        )

    def _build_reporter(self) -> Reporter:
        return Reporter(
            write=self._status.write,
            emit=self._events.emit,
            metrics=self.metrics,
            clock=time.monotonic,
            now=_utc_now,
            facts=AgentFacts(version=__version__, config_path=str(self._state.plugin.config)),
        )

    def start(self) -> None:
        self._events.start()
        self._heartbeat.start()
        self.server.start()
        for watch in self._watches.values():
            watch.start()
        self._files.ensure()

    def run(self) -> None:
        """Make passes until `stop`."""
        while not self._stopping.is_set():
            due_seconds = self._pass()
            self._stopping.wait(LEAST_PAUSE_SECONDS)
            self._wake.wait(due_seconds)
            self._wake.clear()

    def stop(self) -> None:
        """Make `run` return after the current step; safe in a signal handler."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        self._files.stop()
        self._heartbeat.stop()
        self._events.stop()
        self.server.stop()
        self._kubelet.close()
        if self._driver.close():
            self._lock.release()
        # Else the lock ends with the process: no other agent may start on top of a call that still runs.

    def _pass(self) -> float:
        # Before the plan was read, "no plan" would be believed and every GPU counted as unmanaged.
        if not self._plans.synced.is_set():
            return LEAST_PAUSE_SECONDS
        if self._bound.synced.is_set():
            self._cache.pods.set_synced()
        self._files.ensure()
        self._budget.renew()
        started = time.monotonic()
        try:
            ended = self._agent.reconcile()
        except Exception as error:  # noqa: BLE001 - the next pass may work, whatever this was; it is logged
            self._pass_failed(error)
            return FAILED_PAUSE_SECONDS
        self._failure = ""
        self._passed_at, self._passes = time.monotonic(), self._passes + 1
        self.ended_by = self._driver_loss.note(ended.driver_problem)
        if self.ended_by:
            log.error("%s", self.ended_by)
            self.stop()
        # After a pause longer than SILENT_SECONDS the heartbeat was held back: this pass is what it waited for.
        self._heartbeat.retry_now()
        self.metrics.pass_took(self._passed_at - started)
        return ended.due_seconds

    def _pass_failed(self, error: Exception) -> None:
        """The same traceback every few seconds would bury everything else in the log."""
        text = "".join(traceback.format_exception(error))
        if text == self._failure:
            log.warning("the pass failed again: %s: %s", type(error).__name__, error)
        else:
            log.error("the pass failed", exc_info=error)
        self._failure = text
        self.metrics.error("pass")

    def _idle_seconds(self) -> float:
        return time.monotonic() - self._passed_at

    def _check_passes(self) -> None:
        """No heartbeat while no pass completes."""
        if self._idle_seconds() > SILENT_SECONDS:
            raise NoPassError(f"not sent: no pass completed in {SILENT_SECONDS:g} s")

    def _health(self) -> list[str]:
        found = []
        seconds = self._idle_seconds()
        if self._plans.synced.is_set() and seconds > STUCK_SECONDS:
            found.append(f"no pass completed in {seconds:.0f} s")
        hanging = self._driver.hanging()
        # Passes continue without the driver, and none of them can do anything.
        if hanging is not None and hanging.seconds > STUCK_SECONDS:
            found.append(f"{hanging.what}: no answer from the driver for {hanging.seconds:.0f} s")
        return found

    def _readiness(self) -> list[str]:
        unread = [what for what, watch in self._watches.items() if not watch.synced.is_set()]
        missing = [f"{what} not read from the API yet" for what in unread]
        return missing or ([] if self._passes else ["no pass has completed yet"])


def _utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

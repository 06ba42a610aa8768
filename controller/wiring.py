"""Build the parts of the controller around one API client, and stop them again.

Takes a client, the settings and, for tests, a planner and clocks, and returns a Controller with `run` and `stop`. Knows
which watch feeds which part and who may write when, and nothing of what a pass does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiClient
from prometheus_client import CollectorRegistry

from controller.actions.agent_liveness import AgentLiveness
from controller.actions.metrics import ClusterGauges, Metrics
from controller.actions.nominations import Nominator
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.actions.reporter import Reporter
from controller.api import paths
from controller.api.nodes import read_node
from controller.api.pods import read_pod
from controller.cache.batcher import Batcher
from controller.cache.cluster import Deadlines
from controller.cache.informers import SchedulingInformers
from controller.cache.state import State
from controller.config.options import planner_options, warn_about_geometries
from controller.config.scheduler_source import SourceWatch
from controller.config.settings import Settings
from controller.loop import Loop, Parts, Planner
from controller.model.phases import FINISHED
from crds.v1alpha1.names import ANNOTATION_STATUS_PROBLEM, CONTROLLER_LEASE, CONTROLLER_MANAGER, agent_lease
from kube.events import EventRecorder
from kube.leases import Elector, LeaseTiming, lease_path
from kube.reflector import Reflector
from kube.serve import Server, check_page, json_page, metrics_page

log = logging.getLogger(__name__)

UNFINISHED = {"fieldSelector": ",".join(f"status.phase!={phase}" for phase in FINISHED)}
"""A pod that finishes leaves this watch, which is all that planning needs to know."""


STALE_SECONDS = 60.0
"""Nothing is planned or written from watches that have failed for so long."""

EVENTS = 20_000
"""How many may wait to be written: one pass of a large cluster may report on every pending pod."""


class Controller:
    """One controller process; `run` returns when it was stopped, or has lost its Lease."""

    def __init__(
        self,
        api: ApiClient,
        settings: Settings,
        *,
        planner: Planner,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.lost = False
        """The Lease was lost, or the scheduler filters in another way: this process must not go on."""
        self._stopping = False
        self._awake = threading.Event()
        self._settings = settings
        self._recorder = EventRecorder(api, CONTROLLER_MANAGER, instance=identity, queue_size=EVENTS)
        self._elector = self._make_elector(api, identity)
        self.metrics = Metrics(CollectorRegistry())
        self._loop = self._make_loop(api, planner, clock, now)
        self._reflectors = self._make_reflectors(api)
        self._server = Server(
            settings.metrics_address,
            settings.metrics_port,
            {
                "/metrics": metrics_page(self.metrics.registry),
                "/healthz": check_page(self._loop.problems),
                "/readyz": check_page(lambda: [*self._not_current(), *self._loop.failing()]),
                "/decisions": json_page(self._loop.decisions),
            },
        )

    @property
    def port(self) -> int:
        """Where /metrics and the other pages are."""
        return self._server.port

    def run(self) -> None:
        """Work on this thread."""
        try:
            self._server.start()
            self._recorder.start()
            for reflector in self._reflectors:
                reflector.start()
            if self._elector is not None:
                self._elector.start()
            self._source.start()
            self._loop.run()
        finally:
            self._take_down()

    def stop(self) -> None:
        """From any thread or signal handler: end `run` soon."""
        self._stopping = True
        self._loop.stop()

    def _take_down(self) -> None:
        self._stopping = True
        self._source.stop()
        if self._elector is not None:
            self._elector.stop()  # first: the next leader need not wait for the rest
        for reflector in self._reflectors:
            reflector.stop()
        self._informers.stop()
        self._recorder.stop()
        self._server.stop()

    # ------------------------------------------------------------------------------------------ the parts

    def _make_elector(self, api: ApiClient, identity: str) -> Elector | None:
        election = self._settings.leader_election
        if not election.enabled:
            return None
        return Elector(
            api,
            namespace=self._settings.namespace,
            name=CONTROLLER_LEASE,
            identity=identity,
            on_started=self._awake.set,
            on_stopped=self._lease_lost,
            timing=LeaseTiming(
                lease_seconds=election.lease_duration_seconds,
                renew_seconds=election.renew_deadline_seconds,
                retry_seconds=election.retry_period_seconds,
            ),
        )

    def _lease_lost(self) -> None:
        if self._stopping:
            return
        log.error("the Lease was lost: ending, so that a new process starts from a clean state")
        self.lost = True
        self._loop.stop()

    def _scheduler_changed(self) -> None:
        if not self._stopping:
            log.warning("the scheduler's configuration has changed: ending, so that a new process starts with it")
            self.lost = True
            self._loop.stop()

    def _leading(self) -> bool:
        """Asked before each write; while this process ends nothing more is sent."""
        return not self._stopping and (self._elector is None or self._elector.leading)

    def _make_loop(
        self, api: ApiClient, planner: Planner, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> Loop:
        settings, leading, metrics = self._settings, self._leading, self.metrics
        options = planner_options(settings, api)
        self._source = SourceWatch(settings, api, options.profiles, changed=self._scheduler_changed)
        self._informers = SchedulingInformers(api, options.profiles, awake=self._awake)
        window: Batcher[str] = Batcher(
            idle_seconds=settings.batch_window_idle_seconds,
            timeout_seconds=settings.batch_window_timeout_seconds,
            clock=clock,
        )
        self.state = state = State(
            window=window,
            options=options,
            clock=clock,
            deadlines=Deadlines(
                agent_silent_seconds=settings.agent_silent_seconds,
                under_way_seconds=settings.under_way_seconds,
                ageing_seconds=settings.ageing_seconds,
                bind_seconds=settings.bind_seconds,
            ),
            informers=self._informers,
            awake=self._awake,
        )
        metrics.registry.register(ClusterGauges(state, lambda: window.open, self._watch_errors))
        writer = Writer(api, state, leading=leading, clock=clock)
        parts = Parts(
            state=state,
            window=window,
            planner=warn_about_geometries(planner, options),
            options=options,
            writer=writer,
            metrics=metrics,
            plan_lifecycle=self._make_plan_lifecycle(api, writer, clock),
            agent_liveness=self._make_agent_liveness(api, clock, now),
            reporter=Reporter(self._recorder, metrics, state, clock=clock, now=now),
            nominator=Nominator(api, state, metrics, enabled=settings.nominate_pods, leading=leading, clock=clock),
        )
        return Loop(parts, awake=self._awake, synced=lambda: not self._not_current(), leading=leading, clock=clock)

    def _make_plan_lifecycle(self, api: ApiClient, writer: Writer, clock: Callable[[], float]) -> PlanLifecycle:
        return PlanLifecycle(
            api,
            self.state,
            writer,
            self.metrics,
            leading=self._leading,
            clock=clock,
            plan_return_seconds=self._settings.plan_return_seconds,
            orphan_plan_seconds=self._settings.orphan_plan_seconds,
        )

    def _make_agent_liveness(
        self, api: ApiClient, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> AgentLiveness:
        return AgentLiveness(
            api,
            self.state,
            self.metrics,
            leading=self._leading,
            clock=clock,
            now=now,
            agent_silent_seconds=self._settings.agent_silent_seconds,
            taint_removal_seconds=self._settings.taint_removal_seconds,
        )

    def _make_reflectors(self, api: ApiClient) -> tuple[Reflector[Any], ...]:
        state = self.state
        return (
            Reflector(
                api, paths.NODES, project=read_node, on_change=lambda key, _old, new: state.observe_node(key[1], new)
            ),
            Reflector(
                api,
                paths.PLANS,
                project=state.read_plan,
                on_change=lambda key, _old, new: state.observe_plan(key[1], new),
            ),
            Reflector(api, lease_path(self._settings.namespace), project=_beat, on_change=self._lease_changed),
            Reflector(
                api,
                paths.PODS,
                params=UNFINISHED,
                project=read_pod,
                on_change=lambda key, _old, new: state.observe_pod(key, new),
            ),
        )

    def _watch_errors(self) -> dict[str, str]:
        mine = {reflector.path: reflector.last_error for reflector in self._reflectors}
        return {**mine, **self._informers.watch_errors()}

    def _lease_changed(self, key: tuple[str, str], _old: object, new: tuple[str, str] | None) -> None:
        if new is not None:  # a Lease that is deleted just ages
            self.state.observe_heartbeat(key[1].removeprefix(agent_lease("")), *new)

    def _not_current(self) -> list[str]:
        """Why nothing may be planned: watches that are not listed yet, or have failed for too long."""
        problems = [self._watch_problem(reflector) for reflector in self._reflectors]
        return [problem for problem in problems if problem]

    def _watch_problem(self, reflector: Reflector[Any]) -> str:
        why = f": {reflector.last_error}" if reflector.last_error else ""
        if not reflector.synced.is_set():
            return f"{reflector.path} is not listed yet{why}"
        stale_seconds = reflector.stale_seconds()
        if stale_seconds <= most_stale_seconds(reflector.path, self._settings):
            return ""
        return f"{reflector.path} has not been watched for {stale_seconds:.0f} s, nothing is planned until it is{why}"


def most_stale_seconds(path: str, settings: Settings) -> float:
    """How long a watch may fail before nothing rests on it any more."""
    if path == lease_path(settings.namespace):
        # Else agents would seem to fall silent, one after the other, because no watch hears them.
        return min(STALE_SECONDS, settings.agent_silent_seconds / 2)
    return STALE_SECONDS


def _beat(raw: dict[str, Any]) -> tuple[str, str] | None:
    """The renewTime of an agent's Lease, and why its status is refused if it is; None for other Leases."""
    if not raw["metadata"]["name"].startswith(agent_lease("")):
        return None
    renew_time = (raw.get("spec") or {}).get("renewTime")
    problem = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS_PROBLEM, "")
    return (str(renew_time), str(problem)) if renew_time else None

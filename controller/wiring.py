"""Builds the parts of the controller around one API client, and stops them again.

Takes a client, the settings and a planner, and returns a Controller with `run` and `stop`. Each
part is built from finished ones, in the order in which they need each other. Knows nothing of what a pass does.
"""

import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial

from kubernetes.client import ApiClient
from prometheus_client import CollectorRegistry

from controller.actions.agent_liveness import AgentLiveness
from controller.actions.cluster_gauges import ClusterGauges
from controller.actions.environment import Environment
from controller.actions.metrics import Metrics
from controller.actions.node_labels import NodeLabels
from controller.actions.nominations import Nominator
from controller.actions.nvidia_configs import NvidiaConfigs
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.actions.pod_latency import PodLatency
from controller.actions.reporter import Reporter
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache, Deadlines
from controller.cache.informers import SchedulingInformers
from controller.cache.state import State
from controller.cache.watches import Watches
from controller.config.options import Planner, planner_options, warn_about_geometries
from controller.config.scheduler_source import SourceWatch
from controller.config.settings import LOOPBACK, Settings
from controller.lifetime import Lifetime
from controller.loop import Loop, Parts
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from crds.v1alpha1.names import CONTROLLER_LEASE, CONTROLLER_MANAGER
from kube.access import Access
from kube.clients import Client
from kube.events import EventRecorder
from kube.leases import Elector, LeaseTiming
from kube.serve import Private, Server, check_page, json_page, metrics_page
from kube.telemetry import PlumbingGauges, RequestMetrics, export_build
from partitioning import __version__

EVENTS = 20_000
"""How many may wait to be written: one pass of a large cluster may report on every pending pod."""
PASS_SECONDS = 40.0
"""The last resort: what a pass has placed by then is its plan. Its limit on work ends it long before."""

READS_ALL_PODS = {"verb": "list", "resource": "pods"}
"""In all namespaces, as no namespace is given: what who reads `/decisions` must be allowed to."""


class Controller:
    """One controller process; `run` returns when it was stopped, or must not go on."""

    def __init__(self, api: ApiClient, settings: Settings, *, planner: Planner, identity: str) -> None:
        clock = time.monotonic
        self._lifetime = lifetime = Lifetime()
        self._elector = elector = _elector(api, settings, identity, lifetime)
        self._recorder = EventRecorder(api, CONTROLLER_MANAGER, instance=identity, queue_size=EVENTS)
        self.metrics = Metrics(CollectorRegistry())
        options = planner_options(settings, api)
        self._source = SourceWatch(
            settings,
            api,
            options.profiles,
            changed=partial(lifetime.give_up, "the scheduler's configuration has changed"),
        )
        window: Batcher[str] = Batcher(
            idle_seconds=settings.batch_window_idle_seconds,
            timeout_seconds=settings.batch_window_timeout_seconds,
            clock=clock,
        )
        self._informers = informers = SchedulingInformers(api, options.profiles, awake=lifetime.awake)
        cluster = ClusterCache(
            options=options,
            clock=clock,
            deadlines=Deadlines(**{each.name: getattr(settings, each.name) for each in fields(Deadlines)}),
            informers=informers,
            wall=time.time,
        )
        self.state = State(cluster, window=window, awake=lifetime.awake)
        self._watches = watches = Watches(
            api, self.state, namespace=settings.namespace, agent_silent_seconds=settings.agent_silent_seconds
        )
        self._export(api, options, window, clock)
        environment = Environment(
            api=api,
            state=self.state,
            metrics=self.metrics,
            leading=lambda: not lifetime.over and (elector is None or elector.leading),
            clock=clock,
        )
        plan = _within(PASS_SECONDS, clock, warn_about_geometries(planner, options), options)
        parts = _parts(environment, settings, window, plan, self._recorder)
        self._loop = Loop(parts, lifetime=lifetime, synced=watches.current)
        self._server = _server(api, settings, self.metrics, watches, self._loop)

    def _export(
        self, api: ApiClient, options: PlannerOptions, window: Batcher[str], clock: Callable[[], float]
    ) -> None:
        registry = self.metrics.registry
        export_build(registry, "controller", __version__)
        if isinstance(api, Client):
            api.answered = RequestMetrics(registry).answered
        registry.register(PlumbingGauges(self._recorder, self._watches.stale_seconds))
        registry.register(
            ClusterGauges(
                self.state.cluster,
                window,
                self.metrics,
                clock=clock,
                options=options,
                watch_errors=(self._watches.errors, self._informers.watch_errors),
            )
        )

    @property
    def port(self) -> int:
        """Where /metrics and the other pages are."""
        return self._server.port

    @property
    def lost(self) -> bool:
        """The Lease was lost, or the scheduler's configuration changed: this process must exit."""
        return self._lifetime.lost

    def run(self) -> None:
        """Work on this thread."""
        try:
            self._server.start()
            self._recorder.start()
            self._watches.start()
            if self._elector is not None:
                self._elector.start()
            self._source.start()
            self._loop.run()
        finally:
            self._take_down()

    def stop(self) -> None:
        """From any thread but in no signal handler: end `run` soon."""
        self._lifetime.end()

    def _take_down(self) -> None:
        self._lifetime.end()
        self._source.stop()
        if self._elector is not None:
            self._elector.stop()  # first: the next leader need not wait for the rest
        self._watches.stop()
        self._informers.stop()
        self._recorder.stop()
        self._server.stop()


def _elector(api: ApiClient, settings: Settings, identity: str, lifetime: Lifetime) -> Elector | None:
    election = settings.leader_election
    if not election.enabled:
        return None
    return Elector(
        api,
        namespace=settings.namespace,
        name=CONTROLLER_LEASE,
        identity=identity,
        on_started=lifetime.awake.set,
        on_stopped=partial(lifetime.give_up, "the Lease was lost"),
        timing=LeaseTiming(
            lease_seconds=election.lease_duration_seconds,
            renew_seconds=election.renew_deadline_seconds,
            retry_seconds=election.retry_period_seconds,
        ),
    )


def _within(
    seconds: float, clock: Callable[[], float], planner: Planner, options: PlannerOptions
) -> Callable[[Snapshot], PlanningResult]:
    def plan(snapshot: Snapshot) -> PlanningResult:
        end = clock() + seconds
        return planner(snapshot, options, out_of_time=lambda: clock() >= end)

    return plan


def _parts(
    environment: Environment,
    settings: Settings,
    window: Batcher[str],
    planner: Callable[[Snapshot], PlanningResult],
    recorder: EventRecorder,
) -> Parts:
    writer = Writer(environment)
    return Parts(
        environment=environment,
        window=window,
        planner=planner,
        writer=writer,
        plan_lifecycle=PlanLifecycle(
            environment,
            writer,
            namespace=settings.namespace,
            plan_return_seconds=settings.plan_return_seconds,
            orphan_plan_seconds=settings.orphan_plan_seconds,
        ),
        agent_liveness=AgentLiveness(
            environment,
            agent_silent_seconds=settings.agent_silent_seconds,
            taint_removal_seconds=settings.taint_removal_seconds,
        ),
        node_labels=NodeLabels(environment, manage_operator=settings.operator_labels == "manage"),
        nvidia_configs=NvidiaConfigs(environment, settings.nvidia_config),
        reporter=Reporter(environment, recorder, mps_user_id=settings.mps_user_id),
        pod_latency=PodLatency(environment),
        nominator=Nominator(environment, enabled=settings.nominate_pods),
    )


def _server(api: ApiClient, settings: Settings, metrics: Metrics, watches: Watches, loop: Loop) -> Server:
    decisions = json_page(loop.decisions)
    access = Access(api, READS_ALL_PODS, "list pods in all namespaces")
    return Server(
        settings.metrics_address,
        settings.metrics_port,
        {
            "/metrics": metrics_page(metrics.registry),
            "/healthz": check_page(loop.problems),
            "/readyz": check_page(lambda: [*watches.problems(), *loop.failing()]),
            # It names pods of all namespaces. On loopback only this pod reads it, or who may forward ports to it.
            "/decisions": decisions if settings.metrics_address == LOOPBACK else Private(decisions, access.refusal),
        },
    )

"""Counts for Prometheus: the agent's series, most beginning with `gpuplan_agent_`.

Takes outcomes and durations, and keeps numbers in a registry of this agent's own, so that several agents fit in one
process. Labels must stay few and bounded. The node is no label: Prometheus adds it to everything that it scrapes from
this agent. `gpu_gauges` has the series that describe the GPUs as the last pass saw them.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kube.telemetry import export_build
from nodeagent.handover.mps_state import MpsState
from nodeagent.outcome.pass_result import GpuOutcome
from nodeagent.report.gpu_gauges import GpuGauges
from nodeagent.steps.actuator import Actuated

APPLY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
PASS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ACTUATE, REGISTER, ALLOCATABLE = CHANGE_PHASES = ("actuate", "register", "allocatable")


class AgentMetrics:
    """Who counts something does it on the series here."""

    def __init__(self, version: str, *, clock: Callable[[], float], name_pods: bool = False) -> None:
        """`name_pods`: also export which pod holds which partition."""
        self.registry = CollectorRegistry()
        export_build(self.registry, "agent", version)
        self._gpus = GpuGauges(clock=clock, name_pods=name_pods)
        self.registry.register(self._gpus)
        self.generation = self._gauge("confirmed_generation", "Generation of the plan that was confirmed last.")
        self.passes = self._seconds("pass_duration_seconds", "Duration of one pass.", PASS_BUCKETS)
        self.applied = self._seconds(
            "apply_duration_seconds", "From a GPU's new item to its being confirmed.", APPLY_BUCKETS
        )
        self.phases = self._seconds(
            "change_phase_duration_seconds",
            "The same by phase: until hardware and config are as planned (actuate), until the kubelet shows the "
            "devices (register), until the Node counts them (allocatable).",
            APPLY_BUCKETS,
            "phase",
        )
        for phase in CHANGE_PHASES:
            self.phases.labels(phase)
        self._steps = self._counter("steps", "MIG instances created and destroyed.", "action")
        self._errors = self._counter("errors", "Errors by what failed: driver call, API write, pass.", "kind")
        self._drifted = self._counter(
            "drift_repaired", "MIG instances changed outside gpuplan on a GPU of the plan, and put right.", "action"
        )
        self.mps_alarms = self._counter(
            "mps_alarms", "MPS daemons that ended, and limits of theirs that a client changed; each was put right."
        )
        self.refused_pods = self._counter("refused_pods", "Pods that the kubelet refused for lack of a device.")
        self.held_twice = self._gauge("devices_held_twice", "Devices that two pods hold of which none has ended.")
        self.heartbeat_age = self._gauge("heartbeat_age_seconds", "Since the last heartbeat that the API accepted.")
        self.status_failures = self._gauge(
            "status_write_failures",
            "Status writes that failed since the last one that the API accepted; from 3 on, while heartbeats get "
            "through, the plan shows CannotReport.",
        )

    def found(self, outcomes: Iterable[GpuOutcome], mps: MpsState | None = None) -> None:
        """What one pass saw."""
        self._gpus.seen = tuple(outcomes), mps

    def actuated(self, done: Actuated) -> None:
        """What the actuator did on one GPU."""
        _count_steps(self._steps, done)
        if done.error is not None and done.fresh:
            self.error(f"driver-{done.error.kind}")

    def drift_repaired(self, done: Actuated) -> None:
        """What was changed outside gpuplan is undone."""
        _count_steps(self._drifted, done)

    def error(self, kind: str) -> None:
        self._errors.labels(kind).inc()

    def _seconds(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"gpuplan_agent_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"gpuplan_agent_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gpuplan_agent_{name}", text, labels, registry=self.registry)


def _count_steps(counter: Counter, done: Actuated) -> None:
    counter.labels("create").inc(len(done.created))
    counter.labels("destroy").inc(len(done.destroyed))

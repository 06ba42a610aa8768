"""The controller's Prometheus series that are written as things happen; `cluster_gauges` has those read at a scrape.

One registry per process, made by `wiring` and by tests; nothing global. Labels must stay few and bounded: never the
name of a pod.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.model.results import CutShort, PlannerPhase, Supply

PLANNING_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
APPLY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
READY_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
WAIT_BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0)
PLACED = "Placed"
"""Decided on a pod that the last pass placed."""


class ErrorStage(StrEnum):
    """Where something went wrong: a step of the controller's turn, or the requests of one."""

    STATE = "state"
    LIFECYCLE = "lifecycle"
    AGENTS = "agents"
    STATUS = "status"  # the requests of agents
    LABELS = "labels"
    CONFIGS = "configs"
    PLANNING = "planning"
    WRITE = "write"  # the requests of planning
    NOMINATE = "nominate"
    REPORT = "report"


class PodPhase(StrEnum):
    """The way of a pod from being pending to running, in order. A pod passes only those that it needs."""

    WINDOW = "window"  # until the first pass that saw it begins; its scheduler's first attempt included
    UNPLACED = "unplaced"  # from a pass that found no place for it to the pass that found one
    PLANNING = "planning"  # the pass that placed it
    WRITE = "write"  # until the plans of that pass are written
    ACTUATE = "actuate"  # until the status shows its GPUs as changed
    ADVERTISE = "advertise"  # until the kubelet registered its devices and the Node counts them
    BIND = "bind"  # until a scheduler bound it
    START = "start"  # until it runs: images, volumes, containers


class PodMetrics:
    """How long placed pods took; `pod_latency` measures it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = partial(Histogram, buckets=WAIT_BUCKETS, registry=registry)
        self.phase_seconds = seconds(
            "gpuplan_pod_phase_duration_seconds",
            "Time that placed pods spent in each phase of their way from pending to running.",
            ["phase"],
        )
        self.wait_seconds = seconds(
            "gpuplan_pod_wait_duration_seconds",
            "Time of placed pods from pending to running: the sum of all phases.",
            ["supply"],
        )
        self.delivery_seconds = seconds(
            "gpuplan_pod_delivery_duration_seconds",
            "Time of placed pods until they were bound, without the phase unplaced: what gpuplan answers for.",
            ["supply"],
        )
        for phase in PodPhase:
            self.phase_seconds.labels(phase=phase.value)
        for supply in Supply:
            self.wait_seconds.labels(supply=supply.value)
            self.delivery_seconds.labels(supply=supply.value)


class Metrics:
    """Every series that is written as things happen."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.passes = self._counter("gpuplan_passes", "Finished planning passes.")
        self.plans_applied = self._counter("gpuplan_plans_applied", "Plans whose spec.planned was written.")
        self.nominations = self._counter("gpuplan_nominations", "Pods nominated to their node.")
        self.planning_seconds = self._seconds(
            "gpuplan_planning_duration_seconds", "Time of one planning pass, from snapshot to result.", PLANNING_BUCKETS
        )
        self.apply_seconds = self._seconds(
            "gpuplan_plan_apply_duration_seconds", "Time to write one plan, repeated attempts included.", APPLY_BUCKETS
        )
        self.ready_seconds = self._seconds(
            "gpuplan_plan_to_ready_duration_seconds",
            "Time from writing a plan until every GPU of the node is settled.",
            READY_BUCKETS,
        )
        self.verdicts: Mapping[str, str] | None = None
        """What the last pass decided on each pod, by uid: PLACED or a reason; None before the first one."""
        text = "Pending pods placed by the last pass, by where their partitions come from."
        self.placed_pods = self._gauge("gpuplan_placed_pods", text, "supply")
        text = "No plan could place more pods than this (last pass)."
        self.placeable_pods = self._gauge("gpuplan_placeable_pods_limit", text)
        text = "Nodes that the last pass left out because planning them raised an error."
        self.failed_nodes = self._gauge("gpuplan_failed_nodes", text)
        text = "Pods that the last pass set aside because planning with them raised an error."
        self.set_aside_pods = self._gauge("gpuplan_set_aside_pods", text)
        text = "GPUs that are drained for pods that have waited long (last pass)."
        self.drained_gpus = self._gauge("gpuplan_drained_gpus", text)
        self.drains = self._counter("gpuplan_drains", "Drains of GPUs begun for pods that have waited long.")
        text = "Planning passes that ended before every pod was examined on every node: work or time was used up."
        self.cut_short = self._counter("gpuplan_passes_cut_short", text, "reason", CutShort)
        text = (
            "Pending pods placed by passes, by the planner's phase that gave them their node; a pod counts in each pass"
            " until it is bound."
        )
        self.phase_placed_pods = self._counter("gpuplan_phase_placed_pods", text, "phase", PlannerPhase)
        text = "GPUs whose planned layout was changed by a written plan."
        self.gpus_changed = self._counter("gpuplan_gpus_changed", text)
        self.pods = PodMetrics(registry)
        self.leader = self._gauge("gpuplan_leader", "1 while this controller leads.")
        text = "Things that went wrong and are tried again, by stage."
        self.errors = self._counter("gpuplan_errors", text, "stage", ErrorStage)

    def _counter(self, name: str, text: str, label: str = "", values: Iterable[Enum] = ()) -> Counter:
        """Its series are there from the start, so that they can be alerted on, and their first count is an increase."""
        found = Counter(name, text, [label] if label else [], registry=self.registry)
        for value in values:
            found.labels(value.value)
        return found

    def _seconds(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

"""The controller's Prometheus series.

Counters and histograms are written where things happen; gauges of the cluster (pending pods, partitions) are read from
the state at each scrape, so that they need no pass and lose the series of what is gone. One registry per process, made
by `__main__` and by tests; nothing global.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.cache.batcher import Batcher
from controller.cache.state import State
from controller.model.views import PartitionView, PlanView

PLANNING_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
APPLY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STAGES = ("state", "lifecycle", "agents", "status", "planning", "write", "nominate", "report")
READY_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """Every series that is written as things happen."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.passes = Counter("gpuplan_passes", "Finished planning passes.", registry=registry)
        self.plans_applied = Counter(
            "gpuplan_plans_applied", "Plans whose spec.planned was written.", registry=registry
        )
        self.nominations = Counter("gpuplan_nominations", "Pods nominated to their node.", registry=registry)
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
        self.unplaced_pods = self._gauge("gpuplan_unplaced_pods", "Pods that the last pass could not place.", "reason")
        self.placed_pods = self._gauge(
            "gpuplan_placed_pods",
            "Pending pods placed by the last pass, by where their partitions come from.",
            "supply",
        )
        self.placeable_pods = self._gauge(
            "gpuplan_placeable_pods_limit", "No plan could place more pods than this (last pass)."
        )
        self.failed_nodes = self._gauge(
            "gpuplan_failed_nodes", "Nodes that the last pass left out because planning them raised an error."
        )
        self.leader = self._gauge("gpuplan_leader", "1 while this controller leads.")
        self.errors = Counter(
            "gpuplan_errors", "Things that went wrong and are tried again, by stage.", ["stage"], registry=registry
        )
        for stage in STAGES:
            self.errors.labels(stage=stage)  # a series that exists from the start can be alerted on

    def _seconds(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)


class ClusterGauges(Collector):
    """Read from the state at each scrape."""

    def __init__(
        self,
        state: State,
        window: Batcher[str],
        watch_errors: Iterable[Callable[[], Mapping[str, str]]] = (),
    ) -> None:
        """`watch_errors` return the last error of each watch, by path."""
        self._state = state
        self._window = window
        self._watch_errors = tuple(watch_errors)
        self._counted: dict[str, tuple[PlanView, Tally[tuple[str, str]]]] = {}

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        yield self._pending()
        yield self._partitions()
        unreadable = GaugeMetricFamily(
            "gpuplan_unreadable_objects", "Objects left out because they cannot be understood.", labels=["kind"]
        )
        for kind, count in sorted(Tally(kind for kind, _ in self._state.unreadable()).items()):
            unreadable.add_metric([kind], count)
        yield unreadable
        watches = GaugeMetricFamily("gpuplan_watch_working", "0 while this watch meets errors.", labels=["path"])
        by_path = {path: error for errors in self._watch_errors for path, error in errors().items()}
        for path, error in sorted(by_path.items()):
            watches.add_metric([path], int(not error))
        yield watches
        yield GaugeMetricFamily(
            "gpuplan_batch_window_open", "1 while pending pods are being collected.", value=int(self._window.open)
        )

    def _pending(self) -> Metric:
        family = GaugeMetricFamily(
            "gpuplan_pending_pods", "Pods without a node that request this resource.", labels=["resource"]
        )
        tally = Tally(resource for pod in self._state.pending() for resource, _ in pod.gpu)
        for resource, count in sorted(tally.items()):
            family.add_metric([resource], count)
        return family

    def _partitions(self) -> Metric:
        family = GaugeMetricFamily(
            "gpuplan_partitions",
            "Partitions of all nodes that agents report, by profile (or MPS slice) and state.",
            labels=["profile", "state"],
        )
        views = self._state.plan_views()
        self._counted = {name: self._count(name, view) for name, view in views.items()}
        total: Tally[tuple[str, str]] = Tally()
        for _, counts in self._counted.values():
            for key, count in counts.items():
                total[key] += count
        for (profile, state), count in sorted(total.items()):
            family.add_metric([profile, state], count)
        return family

    def _count(self, name: str, view: PlanView) -> tuple[PlanView, Tally[tuple[str, str]]]:
        """The partitions of one node, counted again only where its view is another one than at the last scrape."""
        counted = self._counted.get(name)
        if counted is not None and counted[0] is view:
            return counted
        return view, Tally((_profile(part), part.state) for gpu in view.gpus for part in gpu.partitions)


def _profile(partition: PartitionView) -> str:
    """The MIG profile, else the resource without its domain: `gpu-10gb`, `gpu`."""
    return partition.profile or partition.resource.rpartition("/")[2]

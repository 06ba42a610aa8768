"""The controller's Prometheus series that are read from the state at each scrape.

So they need no pass, follow pods that came or went since the last one, and lose the series of what is gone. What is
summed over nodes is counted again only for nodes that changed since the last scrape. Labels are nodes, models, profiles
and closed sets of words; never the name of a pod.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.actions.fullness import Fullness, fullness
from controller.actions.headroom import Headroom, headroom
from controller.actions.metrics import PLACED, Metrics
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache
from controller.model.reasons import UnplacedReason
from controller.model.views import NodeView, PartitionView, PlannerOptions, PlanView
from controller.planner.inventory.eligibility import node_stock
from crds.v1alpha1.names import Mode
from kube.telemetry import Series, gauge

UNDECIDED = "Undecided"
"""Reason of a pending pod that no pass has judged yet, or that needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """One node, as it was counted last."""

    plan: PlanView
    node: NodeView | None
    partitions: Tally[tuple[str, str]]
    headroom: Headroom
    fullness: Fullness


class ClusterGauges(Collector):
    """Read from the state at each scrape."""

    def __init__(
        self,
        cluster: ClusterCache,
        window: Batcher[str],
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        options: PlannerOptions | None = None,
        watch_errors: Iterable[Callable[[], Mapping[str, str]]] = (),
    ) -> None:
        """`watch_errors` return the last error of each watch, by path."""
        self._cluster, self._window, self._metrics, self._clock = cluster, window, metrics, clock
        self._options = options or PlannerOptions()
        self._watch_errors = tuple(watch_errors)
        self._counted: dict[str, _Counted] = {}

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        yield from self._demand()
        yield from self._supply()
        yield from self._plans()
        unreadable = Tally(kind for kind, _ in self._cluster.unreadable())
        yield gauge(
            "gpuplan_unreadable_objects", "Objects left out because they cannot be understood.", "kind", unreadable
        )
        working = {path: int(not error) for errors in self._watch_errors for path, error in errors().items()}
        yield gauge("gpuplan_watch_working", "0 while this watch meets errors.", "path", working)
        yield GaugeMetricFamily(
            "gpuplan_batch_window_open", "1 while pending pods are being collected.", value=int(self._window.open)
        )

    def _demand(self) -> Iterable[Metric]:
        pods, verdicts = self._cluster.pending(), self._metrics.verdicts
        waiting = Tally(pod.namespace for pod in pods if pod.gpu)
        yield gauge("gpuplan_waiting_pods", "Pods without a node that request partitions.", "namespace", waiting)
        decided: Mapping[Series, float] = {}
        unplaced: Mapping[Series, float] = {}
        if verdicts is not None:  # else it stands by: the leader has the reasons
            decided = Tally((resource, verdicts.get(pod.uid, UNDECIDED)) for pod in pods for resource, _ in pod.gpu)
            reasons = Tally(verdicts.get(pod.uid, PLACED) for pod in pods)
            unplaced = {reason.value: reasons[reason.value] for reason in UnplacedReason}
        text = "Pods without a node that request this resource, by what the last pass decided on them."
        yield gauge("gpuplan_pending_pods", text, "resource reason", decided)
        text = "Pending pods that the last pass could not place."
        yield gauge("gpuplan_unplaced_pods", text, "reason", unplaced)
        since, now = self._cluster.demanded_since(), self._clock()
        waits: dict[Series, float] = {}
        for pod in pods:
            for resource, _ in pod.gpu if pod.uid in since else ():
                waits[resource] = max(waits.get(resource, 0.0), now - since[pod.uid])
        text = "How long the oldest pending pod that demands this resource has waited, since this process first saw it."
        yield gauge("gpuplan_oldest_pending_pod_seconds", text, "resource", waits)

    def _supply(self) -> Iterable[Metric]:
        nodes = self._cluster.nodes()
        views = self._cluster.plan_views()
        self._counted = {name: self._count(name, view, nodes.get(name)) for name, view in views.items()}
        total: Tally[tuple[str, str]] = Tally()
        room, full = Headroom(), Fullness()
        for counted in self._counted.values():
            full.add(counted.fullness)
            total.update(counted.partitions)
            room.add(counted.headroom)
        text = "Partitions of all nodes that agents report, by profile (or MPS slice) and state."
        yield gauge("gpuplan_partitions", text, "profile state", total)
        yield from _headroom(room)
        text = "GPUs that agents report, by what pods use them for: mig, mps, whole, mixed or none."
        yield gauge("gpuplan_gpus", text, "model use", full.gpus)
        text = "GPU memory in partitions that pods hold (used), in others (idle), and in no partition (free)."
        yield gauge("gpuplan_gpu_memory_bytes", text, "model state", full.memory)

    def _count(self, name: str, view: PlanView, node: NodeView | None) -> _Counted:
        """Again only where plan or Node is another one than at the last scrape."""
        counted = self._counted.get(name)
        if counted is not None and counted.plan is view and counted.node is node:
            return counted
        return _Counted(
            plan=view,
            node=node,
            partitions=Tally((_profile(part), part.state) for gpu in view.gpus for part in gpu.partitions),
            headroom=Headroom() if node is None else self._headroom(node, view),
            fullness=fullness(view),
        )

    def _headroom(self, node: NodeView, view: PlanView) -> Headroom:
        try:
            return headroom(node_stock(node, view, (), self._options))
        except Exception:  # noqa: BLE001 - planning fails in the same way and reports it, for which it needs /metrics
            return Headroom()

    def _plans(self) -> Iterable[Metric]:
        conditions = {(plan.name, *condition): 1 for plan in self._cluster.plans() for condition in plan.conditions}
        text = "1 for the present status and reason of each condition of a node's plan."
        yield gauge("gpuplan_plan_condition", text, "node condition status reason", conditions)
        held = {
            (name, "paused" if view.paused else "Manual"): 1
            for name, view in self._cluster.plan_views().items()
            if view.paused or view.mode == Mode.MANUAL
        }
        text = "1 while a plan lets the controller plan nothing: paused, or mode Manual."
        yield gauge("gpuplan_held_plan", text, "node by", held)
        text = "1 while the node's agent has not been heard for agentSilentSeconds, 0 otherwise."
        yield gauge("gpuplan_agent_silent", text, "node", self._cluster.silent_agents())


def _headroom(room: Headroom) -> Iterable[Metric]:
    text = "MIG instances of this profile, and no other, that could still be made or are idle, whatever pods wait."
    yield gauge("gpuplan_placeable_partitions", text, "model profile", room.placeable)
    largest = {(model, profile): 1 for model, (_, _, profile) in room.largest.items()}
    text = "1 for the largest MIG profile of which one instance could still be made, or is idle."
    yield gauge("gpuplan_largest_placeable_profile", text, "model profile", largest)
    text = "Memory slices of GPUs that may be changed now, less what is in use."
    yield gauge("gpuplan_free_memory_slices", text, "model", room.free_slices)
    text = (
        "Share of the memory slices of GPUs that may be changed now that are free and lie so that the largest MIG "
        "instance on their GPU cannot cover them."
    )
    scattered = {
        model: (slices - room.largest_slices[model]) / room.slices[model] for model, slices in room.free_slices.items()
    }
    yield gauge("gpuplan_fragmentation_ratio", text, "model", scattered)


def _profile(partition: PartitionView) -> str:
    """The MIG profile, else the resource without its domain: `gpu-10gb`, `gpu`."""
    return partition.profile or partition.resource.rpartition("/")[2]

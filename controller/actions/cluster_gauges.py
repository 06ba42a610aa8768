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
from controller.cache.state import State
from controller.model.reasons import UnplacedReason
from controller.model.views import NodeView, PartitionView, PlannerOptions, PlanView
from controller.planner.inventory.eligibility import node_stock
from crds.v1alpha1.names import Mode

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
        state: State,
        window: Batcher[str],
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        options: PlannerOptions | None = None,
        watch_errors: Iterable[Callable[[], Mapping[str, str]]] = (),
    ) -> None:
        """`watch_errors` return the last error of each watch, by path."""
        self._state, self._window, self._metrics, self._clock = state, window, metrics, clock
        self._options = options or PlannerOptions()
        self._watch_errors = tuple(watch_errors)
        self._counted: dict[str, _Counted] = {}

    def collect(self) -> Iterable[Metric]:
        """The series of this moment."""
        yield from self._demand()
        yield from self._supply()
        yield from self._plans()
        unreadable = _family(
            "gpuplan_unreadable_objects", "Objects left out because they cannot be understood.", "kind"
        )
        for kind, count in sorted(Tally(kind for kind, _ in self._state.unreadable()).items()):
            unreadable.add_metric([kind], count)
        yield unreadable
        watches = _family("gpuplan_watch_working", "0 while this watch meets errors.", "path")
        by_path = {path: error for errors in self._watch_errors for path, error in errors().items()}
        for path, error in sorted(by_path.items()):
            watches.add_metric([path], int(not error))
        yield watches
        yield GaugeMetricFamily(
            "gpuplan_batch_window_open", "1 while pending pods are being collected.", value=int(self._window.open)
        )

    def _demand(self) -> Iterable[Metric]:
        pods = self._state.pending()
        pending = _family(
            "gpuplan_pending_pods",
            "Pods without a node that request this resource, by what the last pass decided on them.",
            "resource",
            "reason",
        )
        waiting = _family("gpuplan_waiting_pods", "Pods without a node that request partitions.", "namespace")
        for namespace, count in sorted(Tally(pod.namespace for pod in pods if pod.gpu).items()):
            waiting.add_metric([namespace], count)
        yield waiting
        unplaced = _family("gpuplan_unplaced_pods", "Pending pods that the last pass could not place.", "reason")
        if (verdicts := self._metrics.verdicts) is not None:  # else it stands by: the leader has the reasons
            tally = Tally((resource, verdicts.get(pod.uid, UNDECIDED)) for pod in pods for resource, _ in pod.gpu)
            for key, count in sorted(tally.items()):
                pending.add_metric(list(key), count)
            reasons = Tally(verdicts.get(pod.uid, PLACED) for pod in pods)
            for reason in UnplacedReason:
                unplaced.add_metric([reason.value], reasons[reason.value])
        yield pending
        yield unplaced
        oldest = _family(
            "gpuplan_oldest_pending_pod_seconds",
            "How long the oldest pending pod that demands this resource has waited, since this process first saw it.",
            "resource",
        )
        since, now = self._state.demanded_since(), self._clock()
        waits: dict[str, float] = {}
        for pod in pods:
            for resource, _ in pod.gpu if pod.uid in since else ():
                waits[resource] = max(waits.get(resource, 0.0), now - since[pod.uid])
        for resource, seconds in sorted(waits.items()):
            oldest.add_metric([resource], seconds)
        yield oldest

    def _supply(self) -> Iterable[Metric]:
        nodes = self._state.nodes()
        views = self._state.plan_views()
        self._counted = {name: self._count(name, view, nodes.get(name)) for name, view in views.items()}
        total: Tally[tuple[str, str]] = Tally()
        room, full = Headroom(), Fullness()
        for counted in self._counted.values():
            full.add(counted.fullness)
            for key, count in counted.partitions.items():
                total[key] += count
            room.add(counted.headroom)
        partitions = _family(
            "gpuplan_partitions",
            "Partitions of all nodes that agents report, by profile (or MPS slice) and state.",
            "profile",
            "state",
        )
        for key, count in sorted(total.items()):
            partitions.add_metric(list(key), count)
        yield partitions
        yield from _headroom(room)
        yield from _fullness(full)

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
        conditions = _family(
            "gpuplan_plan_condition",
            "1 for the present status and reason of each condition of a node's plan.",
            "node",
            "condition",
            "status",
            "reason",
        )
        for plan in self._state.plans():
            for kind, status, reason in plan.conditions:
                conditions.add_metric([plan.name, kind, status, reason], 1)
        yield conditions
        held = _family(
            "gpuplan_held_plan",
            "1 while a plan lets the controller plan nothing: paused, or mode Manual.",
            "node",
            "by",
        )
        for name, view in sorted(self._state.plan_views().items()):
            if view.paused or view.mode == Mode.MANUAL:
                held.add_metric([name, "paused" if view.paused else "Manual"], 1)
        yield held
        silent = _family(
            "gpuplan_agent_silent",
            "1 while the node's agent has not been heard for agentSilentSeconds, 0 otherwise.",
            "node",
        )
        for name, is_silent in sorted(self._state.silent_agents().items()):
            silent.add_metric([name], int(is_silent))
        yield silent


def _fullness(full: Fullness) -> Iterable[Metric]:
    gpus = _family(
        "gpuplan_gpus",
        "GPUs that agents report, by what pods use them for: mig, mps, whole, mixed or none.",
        "model",
        "use",
    )
    memory = _family(
        "gpuplan_gpu_memory_bytes",
        "GPU memory in partitions that pods hold (used), in others (idle), and in no partition (free).",
        "model",
        "state",
    )
    for family, counts in ((gpus, full.gpus), (memory, full.memory)):
        for key, count in sorted(counts.items()):
            family.add_metric(list(key), count)
    yield gpus
    yield memory


def _headroom(room: Headroom) -> Iterable[Metric]:
    placeable = _family(
        "gpuplan_placeable_partitions",
        "MIG instances of this profile, and no other, that could still be made or are idle, whatever pods wait.",
        "model",
        "profile",
    )
    for key, count in sorted(room.placeable.items()):
        placeable.add_metric(list(key), count)
    yield placeable
    largest = _family(
        "gpuplan_largest_placeable_profile",
        "1 for the largest MIG profile of which one instance could still be made, or is idle.",
        "model",
        "profile",
    )
    for model, (_, _, profile) in sorted(room.largest.items()):
        largest.add_metric([model, profile], 1)
    yield largest
    free = _family(
        "gpuplan_free_memory_slices", "Memory slices of GPUs that may be changed now, less what is in use.", "model"
    )
    ratio = _family(
        "gpuplan_fragmentation_ratio",
        "Share of the memory slices of GPUs that may be changed now that are free and lie so that the largest MIG "
        "instance on their GPU cannot cover them.",
        "model",
    )
    for model, slices in sorted(room.free_slices.items()):
        free.add_metric([model], slices)
        ratio.add_metric([model], (slices - room.largest_slices[model]) / room.slices[model])
    yield free
    yield ratio


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))


def _profile(partition: PartitionView) -> str:
    """The MIG profile, else the resource without its domain: `gpu-10gb`, `gpu`."""
    return partition.profile or partition.resource.rpartition("/")[2]

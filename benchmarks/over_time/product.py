"""Puts the product into the simulated cluster: its own loop, State, batch window, planner and nominations.

Takes the settings of a controller. What its watches would bring is given to the State as views and readings, and what
its loop decides is given to the cluster: a plan that is written counts at once. Clocks are the cluster's. What only
reports is left out, and agents never fall silent. An error in a pass ends the replay.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from kubernetes.client import ApiClient
from prometheus_client import CollectorRegistry

from benchmarks.over_time.cluster import Cluster, Gpu
from benchmarks.over_time.readings import id_of, layout_of, reading_of, resource_of
from controller.actions.environment import Environment
from controller.actions.metrics import Metrics
from controller.actions.nominations import Nominator
from controller.actions.plan_writer import Outcome, Written
from controller.api.plan_items import item_of
from controller.api.plans import GpuReading, PlanReading
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache, Deadlines
from controller.cache.state import State
from controller.config.options import planner_options
from controller.config.settings import Settings
from controller.lifetime import Lifetime
from controller.loop import Loop, Parts
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlannedGpu, PodView
from controller.planning import plan
from crds.v1alpha1.names import Mode, Partitioning

LONGEST_WAKE_SECONDS = 5.0
"""While a pod waits: the deadlines of the state are minutes apart."""
SHORTEST_WAKE_SECONDS = 1e-6
"""Time goes on, however it is rounded."""
PLENTY = {"cpu": 10**9, "memory": 1 << 50, "pods": 10**6}
NAMESPACE = "jobs"


class _Absent:
    """Does nothing, whatever it is asked to do."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class FixedWindow(Batcher[str]):
    """Never tried before its window is over."""

    early = False

    def next_in(self) -> float | None:
        return self.due_in()


class Product:
    """A controller as it ships, on the cluster's clock."""

    def __init__(self, cluster: Cluster, settings: Settings, *, early: bool = True) -> None:
        """Without `early` a pod that comes alone waits for its window as any other."""
        self._cluster = cluster
        self._jobs = {f"job-{number}": number for number in range(len(cluster.jobs))}
        self._numbers = {name: number for number, name in enumerate(cluster.nodes)}
        self._versions = 0
        self._error: Exception | None = None
        self._items: dict[tuple[str, int], PlannedGpu] = {}
        self._planned_json: dict[str, str] = {}
        self._generations: Counter[str] = Counter(cluster.nodes)

        def clock() -> float:
            return cluster.timeline.now

        self._window = (Batcher[str] if early else FixedWindow)(
            idle_seconds=settings.batch_window_idle_seconds,
            timeout_seconds=settings.batch_window_timeout_seconds,
            clock=clock,
        )
        self._options = planner_options(settings)
        deadlines = Deadlines(
            agent_silent_seconds=math.inf,
            under_way_seconds=settings.under_way_seconds,
            ageing_seconds=settings.ageing_seconds,
            bind_seconds=settings.bind_seconds,
            drain_seconds=settings.drain_seconds,
        )
        self._state = State(
            ClusterCache(options=self._options, clock=clock, deadlines=deadlines, wall=clock), window=self._window
        )
        environment = Environment(
            api=cast(ApiClient, None),
            state=self._state,
            metrics=Metrics(CollectorRegistry()),
            leading=lambda: True,
            clock=clock,
        )
        self._nominator = Nominator(environment, enabled=settings.nominate_pods)
        self._loop = Loop(self._parts(environment), lifetime=Lifetime(), synced=lambda: True)
        for name in cluster.nodes:
            self._state.observe_heartbeat(name, "alive")
            self.node_changed(name)
            self.plan_changed(name)

    def _parts(self, environment: Environment) -> Parts:
        absent = cast(Any, _Absent())
        return Parts(
            environment=environment,
            window=self._window,
            planner=self._plan,
            writer=cast(Any, self),
            nominator=cast(Any, self),
            plan_lifecycle=absent,
            agent_liveness=absent,
            node_labels=absent,
            nvidia_configs=absent,
            reporter=absent,
            pod_latency=absent,
        )

    def turn(self) -> float | None:
        self._loop.turn()
        if self._error is not None:
            raise self._error
        next_in = self._window.next_in()
        longest = LONGEST_WAKE_SECONDS if self._cluster.pending else None
        return longest if next_in is None else max(min(next_in, longest or next_in), SHORTEST_WAKE_SECONDS)

    def pod_changed(self, job: int) -> None:
        """Bound, pending or gone; a pending one was tried by the scheduler already."""
        one, bound = self._cluster.jobs[job], self._cluster.running.get(job)
        key = (NAMESPACE, one.name)
        if bound is None and job not in self._cluster.pending:
            self._state.observe_pod(key, None)
            return
        resource = resource_of(one.profile)
        view = PodView(
            namespace=NAMESPACE,
            name=one.name,
            uid=f"job-{job}",
            node="" if bound is None else bound[0].node,
            nominated_node=self._cluster.nominated.get(job, ""),
            phase="Pending" if bound is None else "Running",
            priority=one.priority,
            created=int(one.arrival),
            pending_since=int(one.arrival),
            requests=(("cpu", 100), (resource, 1)),
            gpu=((resource, 1),),
            unschedulable=bound is None,
        )
        self._state.observe_pod(key, view)

    def node_changed(self, node: str) -> None:
        shown = {resource_of(profile): count for profile, count in sorted(self._cluster.shown[node].items())}
        size = self._cluster.size
        view = NodeView(
            name=node,
            uid=f"uid-{node}",
            allocatable={**PLENTY, **shown},
            partitioning=Partitioning.MPS if size.shared else Partitioning.MIG,
            product=size.model.product,
            gpu_count=size.gpus,
        )
        self._state.observe_node(node, view)

    def plan_changed(self, node: str) -> None:
        self._state.observe_plan(node, self._reading(node))

    def write(self, result: PlanningResult, _: Snapshot) -> tuple[Outcome, ...]:
        """As the plan writer: each change counts at once."""
        with self._ending():
            return self._write(result)

    def _write(self, result: PlanningResult) -> tuple[Outcome, ...]:
        for change in result.node_changes:
            items = {item.index: item for item in change.gpus}
            self._generations[change.node] += 1
            self._planned_json[change.node] = _planned_json(change.gpus)
            self._state.expect_planned(change.node, self._planned_json[change.node])
            for index in change.changed:
                self._change(change.node, index, items[index])
            self._state.plan_answered(change.node, self._reading(change.node))
        return tuple(Outcome(node=change.node, written=Written.APPLIED) for change in result.node_changes)

    def _change(self, node: str, index: int, item: PlannedGpu) -> None:
        gpu, before = self._cluster.gpus[node][index], self._items.get((node, index))
        self._items[node, index] = item
        drained = () if item.drain is None else item.drain.partitions
        self._cluster.drain(node, index, {one for one in gpu.instances if id_of(gpu, one) in drained})
        if before is None or before.desired != item.desired:
            self._cluster.change(node, index, layout_of(gpu, item.desired))

    def run(self) -> None:
        """As the nominator."""
        with self._ending():
            for pod, node in self._nominator.lacking():
                self._state.nominate(pod.uid, node)
                self._cluster.nominate(self._jobs[pod.uid], node)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """The loop goes on after an error; the replay must not."""
        try:
            yield
        except Exception as error:
            self._error = error
            raise

    def _plan(self, snapshot: Snapshot) -> PlanningResult:
        record = self._cluster.record
        clock = time.process_time if record.measures else float  # asking for it is slow where others want the CPU, too
        began = clock()
        with self._ending():
            result = plan(snapshot, self._options)
        record.passes += 1
        record.plan_seconds += clock() - began
        return result

    def _reading(self, node: str) -> PlanReading:
        self._versions += 1
        readings = tuple(self._gpu(gpu) for gpu in self._cluster.gpus[node])
        planned = tuple(item for (name, _), item in sorted(self._items.items(), key=lambda one: one[0]) if name == node)
        return PlanReading(
            name=node,
            uid=f"plan-{node}",
            version=str(self._versions),
            generation=self._generations[node],
            deleting=False,
            mode=Mode.AUTO,
            paused=False,
            authored=False,
            pinned=(),
            planned=planned,
            stale_items=(),
            planned_json=self._planned_json.get(node, "[]"),
            observed_generation=self._generations[node],
            node_uid=f"uid-{node}",
            handed_back=False,
            relabels=False,
            gpus=readings,
            alive=None,
            ready=None,
        )

    def _gpu(self, gpu: Gpu) -> GpuReading:
        uuid = f"GPU-{self._numbers[gpu.node]:08x}-{gpu.index}"
        held_by = {
            job: f"{NAMESPACE}/{self._cluster.jobs[job].name}" for job in gpu.instances.values() if job is not None
        }
        item = self._items.get((gpu.node, gpu.index))
        return reading_of(gpu, uuid, self._cluster.size, None if item is None else item.desired, held_by)


def _planned_json(gpus: Iterable[PlannedGpu]) -> str:
    return json.dumps([item_of(gpu).wire() for gpu in gpus], separators=(",", ":"))

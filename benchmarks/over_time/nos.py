"""nos' rule in the same cluster as the product: a batch window, and the geometry that serves most of what is lacking.

GPUs are taken by node and index. Of the full geometries that keep what is in use, the one with most of the lacking
profiles is chosen; where it differs, all idle instances of the GPU are made again, as its agent does. Which pod gets
which instance is left to the scheduler. Written after the description of its behaviour, it is not nos' code.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from benchmarks.over_time.cluster import Cluster, Gpu
from benchmarks.over_time.product import SHORTEST_WAKE_SECONDS
from controller.cache.batcher import Batcher
from controller.config.settings import Settings
from partitioning.layouts import Instance, Layout
from partitioning.models import GpuModel
from partitioning.placements import occupancy, placements_of

Counts = tuple[tuple[str, int], ...]


@cache
def full_layouts(model: GpuModel, used: Layout) -> tuple[Layout, ...]:
    """One for each geometry that keeps these instances and has room for no other."""
    places = [place for each in placements_of(model).values() for place in each if "+" not in place.instance.profile]
    found: dict[Counts, Layout] = {}
    reached: set[tuple[Counts, int]] = set()

    def extend(layout: Layout, mask: int) -> None:
        full = True
        for place in places:
            if mask & place.blockers:
                continue
            full = False
            larger = layout.union([place.instance])
            geometry = tuple(larger.counts().items()), mask | place.taken
            if geometry not in reached:
                reached.add(geometry)
                extend(larger, mask | place.taken)
        if full:
            found.setdefault(tuple(layout.counts().items()), layout)

    extend(used, occupancy(model, used))
    return tuple(found[geometry] for geometry in sorted(found))


class NosRule:
    """A controller of the cluster."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._window: Batcher[str] = Batcher(
            idle_seconds=settings.batch_window_idle_seconds,
            timeout_seconds=settings.batch_window_timeout_seconds,
            clock=lambda: cluster.timeline.now,
        )

    def pod_changed(self, job: int) -> None:
        if job in self._cluster.pending:
            self._window.add(f"pod {job}", extend=True)
        else:
            self._window.discard(f"pod {job}")

    def node_changed(self, node: str) -> None:
        """Its agent has reported, or a pod has ended there."""
        if self._cluster.pending:
            self._window.add(f"node {node}")

    plan_changed = node_changed

    def turn(self) -> float | None:
        if self._window.due_in() == 0:
            self._window.take()
            self._cluster.record.passes += 1
            self._plan()
        due_in = self._window.due_in()
        return None if due_in is None else max(due_in, SHORTEST_WAKE_SECONDS)

    def _plan(self) -> None:
        cluster = self._cluster
        lacking = Counter(cluster.jobs[job].profile for job in cluster.pending)
        gpus = [gpu for node in cluster.nodes for gpu in cluster.gpus[node]]
        for gpu in gpus:
            lacking -= Counter(instance.profile for instance in (*gpu.free, *(gpu.coming or ())))
        for gpu in gpus:
            if not lacking:
                return
            if gpu.coming is None:
                lacking -= self._cut(gpu, lacking)

    def _cut(self, gpu: Gpu, lacking: Counter[str]) -> Counter[str]:
        """Returns what comes for those that lack it."""
        used = [instance for instance, job in gpu.instances.items() if job is not None]
        layouts = full_layouts(self._cluster.size.model, Layout.of(used))
        free = Counter(instance.profile for instance in gpu.free)

        def gained(layout: Layout) -> Counter[str]:
            return (_counts(layout, used) - free) & lacking

        best = max(layouts, key=lambda layout: gained(layout).total(), default=None)
        if best is None or not gained(best):
            return Counter()
        self._cluster.change(gpu.node, gpu.index, best, keep_idle=False)
        return gained(best)


def _counts(layout: Layout, used: Sequence[Instance]) -> Counter[str]:
    return Counter(instance.profile for instance in layout.without(used))

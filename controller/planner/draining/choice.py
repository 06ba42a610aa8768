"""Chooses what is drained next: for the pods that have waited longest, the place that fewest holders keep from them.

Takes the board after all pods were placed. Holders run on; no new pod gets what they hold, so that the place is free
when the last of them has ended, although the scheduler would refill each partition at once. The kubelet's allocatable
is a count: a drained device that is held takes a slot of its profile from whatever is freed first on its node. So no
device of a profile that the pod itself wants is drained, nor one that was promised to others there. Never chooses what
a pod of higher priority holds or could want, and nothing whose holder is not known. Nor does it wait for one that came
before the pod: it has not overtaken the pod, and may never end.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from controller.model.demand import Wants
from controller.model.views import Drain, PartitionView, PlannerOptions, PodView
from controller.planner.board.assignment import Assignment
from controller.planner.board.devices import Device
from controller.planner.board.pools import MigPool
from controller.planner.draining.drains import Drains, GpuDrain
from controller.planner.draining.holding import could_hold_with, fits_without
from controller.planner.inventory.stock import GpuStock, mig_layout
from partitioning.placements import occupancy, placements_of

Cost = tuple[bool, int, int, int, int]

LOOKS = 2_000_000
"""At GPUs, in one pass: some seconds. Each namespace has its share, and in any case its first pod's look at all."""
_CLOSER = 4
"""A look at what else the node has, once the holders have gone."""


@dataclass(slots=True, kw_only=True)
class _Way:
    """What would have to go of a GPU, for pods of the same partitions."""

    parts: Sequence[PartitionView]
    held: Sequence[PartitionView]
    names: frozenset[str]
    """Resources of what is held."""
    oldest: float
    """When the first of its holders was created; one that is not known has always been there."""
    highest: int
    """Priority of its holders."""
    could: bool | None = None
    """Whether the GPU could hold the pod then; None: not known yet."""


@dataclass(slots=True, kw_only=True, eq=False)
class Choice:
    """Made once per pass."""

    drains: Drains
    options: PlannerOptions
    entitled: frozenset[str] = frozenset()
    """Uids of pods that have waited long, and whose turn is not over."""
    having: Collection[str] = ()
    """Of pods for which the plans drain."""
    bound: dict[str, PodView] = field(default_factory=dict)
    """Those that may hold a partition, by title."""
    possible: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    """Of alike pods: a GPU could be drained for those created by the first time, for none of the second or later."""
    promised: dict[int, set[str]] = field(default_factory=dict)
    """By node, what pods are to get there."""
    waiting: Sequence[Assignment] = ()
    looked: Counter[str] = field(default_factory=Counter)
    """At how much, by the namespace that waits."""
    share: int = 0
    missed: set[str] = field(default_factory=set)
    """Uids of pods for which no look was left: they have theirs first in the next pass."""
    ways: dict[tuple[int, int, Wants], list[_Way]] = field(default_factory=dict)
    """By node, GPU and partitions: pods that differ in nothing but CPU share them."""

    def __post_init__(self) -> None:
        snapshot = self.drains.snapshot
        self.having = {gpu.drain.uid for stock in self.drains.stocks for gpu in stock.gpus if gpu.drain is not None}
        if snapshot.drained_for and self.drains.most:
            self.entitled = snapshot.drained_for - snapshot.resting
            self.bound = {pod.title: pod for pod in snapshot.pods if pod.gpu}
            self.share = LOOKS // max(1, len({pod.namespace for pod in snapshot.pending if pod.uid in self.entitled}))

    def may_serve(self, one: Assignment) -> bool:
        """Whether a GPU is drained for the pod, or could be now: before any pod is placed."""
        if one.pod.uid in self.having or one.pod.uid not in self.entitled or one.pod.gang:
            return one.pod.uid in self.having
        pods_class = self._equivalence_class(one)
        could, never = self.possible.get(pods_class, (-math.inf, math.inf))
        if could < one.pod.created < never:
            found = any(True for _ in self._possible(one))
            if one.pod.uid in self.missed:
                return False
            could, never = self.possible[pods_class] = (one.pod.created, never) if found else (could, one.pod.created)
        return one.pod.created <= could

    def choose(self, assignments: Sequence[Assignment]) -> None:
        """Begin as many as may be. A namespace with several keeps one where another can have one instead."""
        if not self.entitled:
            return
        self._look_around(assignments)
        self.looked.clear()  # to find out who has no hope at all may have taken the share
        uids = self.entitled - self.drains.ended
        able = (one for one in self.waiting if one.pod.uid in uids and one.groups and not one.pod.gang)
        entitled = sorted(sorted(able, key=_turn), key=self.drains.constrained.turn)
        namespaces = {one.pod.namespace for one in entitled}
        fruitless = defaultdict[Hashable, float](lambda: math.inf)
        for one in entitled:
            having = Counter(each.assignment.pod.namespace for each in self.drains.found)
            if one.pod.namespace in having and namespaces - having.keys():
                continue  # others wait that have none
            same = [each for each in self.drains.found if each.assignment.pod.gpu == one.pod.gpu]
            full = bool(same) or len(self.drains.found) >= self._most
            several = [each for each in same or self.drains.found if having[each.assignment.pod.namespace] > 1]
            pods_class = self._equivalence_class(one)
            if (full and (one.pod.namespace in having or not several)) or one.pod.created >= fruitless[pods_class]:
                continue
            ending = [max(several, key=lambda each: _turn(each.assignment))] if full else []
            for each in ending:
                self.drains.end(each)
            if found := min(self._possible(one), key=lambda each: each[0], default=None):
                self.drains.begin(found[1])
                self.promised.setdefault(found[1].node, set()).update(name for name, _ in one.wants)
                continue
            fruitless.update({pods_class: one.pod.created} if one.pod.uid not in self.missed else {})
            for each in ending:
                self.drains.begin(each)

    def _equivalence_class(self, one: Assignment) -> Hashable:
        """Equal for pods of which the older one can have what the others can."""
        return self.drains.constrained.equivalence_class(one), one.pod.priority

    def _look_around(self, assignments: Sequence[Assignment]) -> None:
        promised = [(one.node, one) for one in assignments if one.placed]
        for node, one in (*promised, *((each.node, each.assignment) for each in self.drains.found)):
            self.promised.setdefault(node, set()).update(name for name, _ in one.wants)
        self.waiting = [one for one in assignments if one.tried and not one.placed]

    @property
    def _most(self) -> int:
        cut = sum(device.gpu >= 0 for devices in self.drains.board.devices for device in devices)
        return min(self.drains.most, max(1, cut * self.options.drained_percent // 100))

    def _possible(self, one: Assignment) -> Iterator[tuple[Cost, GpuDrain]]:
        board, stocks, namespace = self.drains.board, self.drains.stocks, one.pod.namespace
        if self.looked[namespace] > self.share:
            self.missed.add(one.pod.uid)
            return
        above = {name for each in self.waiting if each.pod.priority > one.pod.priority for name, _ in each.wants}
        for node in (node for group in one.groups for node in board.groups[group].nodes):
            stock = stocks[node]
            self.looked[namespace] += 1
            if not stock.is_large_enough(one.needs) or self.drains.constrained.refusal(one, node):
                continue
            lacks_capacity = not board.nodes[node].free.fits(one.needs)
            for device in board.devices[node]:
                if device.gpu < 0 or device.drained or device.parts:
                    continue
                gpu = stock.gpus[device.gpu]
                if not (gpu.view.settled and gpu.view.uuid and gpu.view.desired is not None):
                    continue
                self.looked[namespace] += 1
                for number, way in enumerate(self._ways(one, node, device, gpu)):
                    if self._may_drain(one, node, way, above) and self._would_hold(one, node, device, way):
                        ids = tuple(sorted(part.id for part in way.parts if part.id))
                        drain = Drain(uid=one.pod.uid, pod=one.pod.key, partitions=ids)
                        found = GpuDrain(assignment=one, node=node, stock=stock, gpu=gpu, drain=drain, device=device)
                        yield (lacks_capacity, len(way.held), node, device.gpu, number), found

    def _ways(self, one: Assignment, node: int, device: Device, gpu: GpuStock) -> list[_Way]:
        key = node, device.gpu, one.wants
        if key not in self.ways:
            self.ways[key] = [self._way(parts, gpu) for parts in _sets(one, device, gpu)]
        return self.ways[key]

    def _way(self, parts: Sequence[PartitionView], gpu: GpuStock) -> _Way:
        held = [part for part in parts if part in gpu.retained]
        holders = [self.bound.get(part.pod) if part.held and part.id else None for part in held]
        return _Way(
            parts=parts,
            held=held,
            names=frozenset(part.resource for part in held),
            oldest=min((-math.inf if pod is None else pod.created for pod in holders), default=-math.inf),
            highest=max((pod.priority for pod in holders if pod is not None), default=0),
        )

    def _may_drain(self, one: Assignment, node: int, way: _Way, above: set[str]) -> bool:
        wants = {name for name, _ in one.wants}
        counted = way.names & wants or way.names & above or way.names & self.promised.get(node, set())
        if not way.held or counted or wants & self.drains.board.nodes[node].withheld:
            return False
        return way.oldest > one.pod.created and way.highest <= one.pod.priority

    def _would_hold(self, one: Assignment, node: int, device: Device, way: _Way) -> bool:
        """The GPU, and its node, once the holders have gone."""
        board, stock = self.drains.board, self.drains.stocks[node]
        self.looked[one.pod.namespace] += _CLOSER
        if way.could is None:
            retained = [part for part in stock.gpus[device.gpu].retained if part not in way.held]
            way.could = could_hold_with(one, device, stock, retained, board)
        return way.could and fits_without(one, node, {part.pod for part in way.held}, board, self.bound)


def _turn(one: Assignment) -> tuple[int, int, tuple[str, str]]:
    """In which order pods have drains, and of those of one namespace the last loses its own to another."""
    return -one.pod.priority, one.pod.created, one.pod.key


def _sets(one: Assignment, device: Device, gpu: GpuStock) -> Iterator[list[PartitionView]]:
    """What would have to go: for one instance, what each of its placements needs; for anything else, all."""
    pool, single = device.pool, one.demand.single
    if single is None or not isinstance(pool, MigPool) or gpu.model is None:
        yield [*gpu.retained, *gpu.idle]
        return
    parts = [(part, occupancy(gpu.model, mig_layout([part]))) for part in (*gpu.retained, *gpu.idle)]
    for place in placements_of(gpu.model)[pool.profiles[single]]:
        yield [part for part, taken in parts if place.blockers & taken]

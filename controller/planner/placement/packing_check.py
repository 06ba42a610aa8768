"""How many devices of a group are in which state: enough to test whether a set of asks could be packed.

In goes a group of the board, out comes yes or no. Partitions of one pod are counted, not tied to one node, and nodes'
CPU is one sum, so that yes means "probably" and no means "not in this order". The board is not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Pool


class Tally:
    def __init__(self, *, cpu: int, memory: int, pods: int, counts: list[tuple[Pool, Counter[int]]], sizes: list[str]):
        self.cpu = cpu
        self.memory = memory
        self.pods = pods
        self._counts = counts
        self._sizes = sizes
        self._beside: Counter[str] = Counter()

    @classmethod
    def of(cls, board: Board, group: int) -> Tally:
        rooms = [board.rooms[node] for node in board.groups[group].nodes]
        return cls(
            cpu=sum(max(0, room.cpu) for room in rooms),
            memory=sum(max(0, room.memory) for room in rooms),
            pods=sum(max(0, room.pods) for room in rooms),
            counts=[(pool, Counter([device.state for device in pool.devices])) for pool in board.groups[group].pools],
            sizes=board.sizes,
        )

    def beside(self, asks: Iterable[Ask]) -> Tally:
        """The same with these packed in any case."""
        asks = list(asks)
        rest = Tally(
            cpu=self.cpu - sum(ask.cpu for ask in asks),
            memory=self.memory - sum(ask.memory for ask in asks),
            pods=self.pods - len(asks),
            counts=self._counts,
            sizes=self._sizes,
        )
        rest._beside = self._beside + _requested(asks)
        return rest

    def packs(self, asks: Iterable[Ask]) -> bool:
        """Hardest resources first, each into the devices that lose least by it."""
        return not self.shortfall(asks, at_most=0)

    def shortfall(self, asks: Iterable[Ask], *, at_most: int) -> int:
        """How many of their partitions find no room; it stops counting above `at_most`."""
        requested = self._beside + _requested(asks)
        counts = [(pool, Counter(states)) for pool, states in self._counts]
        hardest_first = [resource for resource in self._sizes if requested.get(resource)]
        missing = 0
        for position, resource in enumerate(hardest_first):
            left = requested[resource]
            for pool, states in counts:
                if left and resource in pool.serves:
                    pool.demand(hardest_first[position:])
                    left = _pour(pool, states, resource, left)
            missing += left
            if missing > at_most:
                break
        return missing


def _requested(asks: Iterable[Ask]) -> Counter[str]:
    found: Counter[str] = Counter()
    for ask in asks:
        for resource, count in ask.demand.wants:
            found[resource] += count
    return found


def _pour(pool: Pool, states: Counter[int], resource: str, wanted: int) -> int:
    """Take `wanted` partitions from counted devices; returns how many could not be had."""
    heap = [
        (fitting.loss, fitting.regret, state)
        for state, count in states.items()
        if count
        for fitting in (pool.fit(state, resource),)
        if fitting is not None
    ]
    heapify(heap)
    while wanted and heap:
        _, _, state = heappop(heap)
        devices = min(states[state], wanted)
        fitting = pool.fit(state, resource)
        if not devices or fitting is None:
            continue
        wanted -= devices
        states[state] -= devices
        states[fitting.after] += devices
        onward = pool.fit(fitting.after, resource)
        if onward is not None:
            heappush(heap, (onward.loss, onward.regret, fitting.after))
    return wanted

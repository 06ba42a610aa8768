"""Tests whether pods could be packed into a group: how many of its devices are in which state is enough for that.

Takes a group of the board, answers yes or no. Partitions of one pod are counted, not tied to one node, and the nodes'
CPU is one sum, so that yes means "probably" and no means "not in this order". Never changes the board.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

from controller.model.capacity import Capacity
from controller.model.demand import total_wants
from controller.planner.board.assignment import Assignment, Taken
from controller.planner.board.board import Board
from controller.planner.board.devices import Pool
from controller.planner.board.nodes import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingCheck:
    """Of one group."""

    board: Board
    group: Group
    free: Capacity
    """What its nodes have left together."""
    counts: Mapping[Pool, Counter[int]]
    """How many devices are in each state."""
    packed: Counter[str] = field(default_factory=Counter)
    """Partitions that are packed in any case."""

    @classmethod
    def of(cls, board: Board, group: int) -> "PackingCheck":
        counts = {pool: Counter([device.state for device in pool.devices]) for pool in board.groups[group].pools}
        return cls(board=board, group=board.groups[group], free=board.free_in(group), counts=counts)

    def count(self, taken: Taken, times: int) -> None:
        """Before the states of these devices change, -1; after it, 1. Copies, as of `with_packed`, share the counts."""
        for device in {id(device): device for device, _ in taken}.values():
            self.counts[device.pool][device.state] += times

    def with_packed(self, coming: Sequence[Assignment], leaving: Sequence[Assignment] = ()) -> "PackingCheck":
        """The same with those that come packed in any case, and without others that were."""
        packed = self.packed + total_wants([one.wants for one in coming])
        packed.subtract(total_wants([one.wants for one in leaving]))
        free = self.free - Capacity.total(one.needs for one in coming) + Capacity.total(one.needs for one in leaving)
        return replace(self, free=free, packed=packed)

    def fits(self, assignments: Sequence[Assignment]) -> bool:
        """Whether these can be packed, too, and the nodes together have the CPU and memory."""
        left = self.free - Capacity.total(one.needs for one in assignments)
        wants = total_wants([one.wants for one in assignments])
        return min(left.cpu_milli, left.memory_bytes, left.pods) >= 0 and self.packs(wants)

    def packs(self, wants: Counter[str]) -> bool:
        """Hardest resources first, each into the devices that lose least by it, of whichever model.

        `wants` are partitions per resource.
        """
        requested = self.packed + wants
        counts = {pool: Counter(states) for pool, states in self.counts.items()}
        hardest_first = [resource for resource in self.board.sizes if requested.get(resource)]
        self.board.effort.looks += sum(map(len, counts.values())) * len(hardest_first)
        for position, resource in enumerate(hardest_first):
            left = requested[resource]
            for pools in self.group.serving(resource):
                for pool in pools:
                    pool.demand(hardest_first[position:])
                left = _take([(pool, counts[pool]) for pool in pools], resource, left)
            if left:
                return False
        return True


def _take(pools: Sequence[tuple[Pool, Counter[int]]], resource: str, count: int) -> int:
    """Take `count` partitions from counted devices of all these pools; returns how many of them do not fit."""
    heap = [
        (fitting.loss, fitting.regret, number, state)
        for number, (pool, states) in enumerate(pools)
        for state, devices in states.items()
        if devices
        for fitting in (pool.fit(state, resource),)
        if fitting is not None
    ]
    heapify(heap)
    while count and heap:
        _, _, number, state = heappop(heap)
        pool, states = pools[number]
        devices = min(states[state], count)
        fitting = pool.fit(state, resource)
        if not devices or fitting is None:
            continue
        count -= devices
        states[state] -= devices
        states[fitting.after] += devices
        onward = pool.fit(fitting.after, resource)
        if onward is not None:
            heappush(heap, (onward.loss, onward.regret, number, fitting.after))
    return count

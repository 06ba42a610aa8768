"""Find another group for asks that their own group has no GPUs for, before anything is placed.

In go the asks chosen per group and those left out, out come both with some of the latter chosen after all: in another
group that they may use, or in place of one that may go to another group. `split` balances loads; which group has the
large holes, only packing tells. Tested on counts of device states, a fixed number of times; the board is not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.clearing import Budget
from controller.planner.tally import Tally

_TRIALS = 120
"""Tests of packing in one level: each takes some tenths of a millisecond."""


def rehome(board: Board, chosen: Sequence[list[Ask]], unserved: Sequence[Ask]) -> list[Ask]:
    """`chosen` per group grows in place; returns those that are still left out."""
    # Gangs were chosen whole or not at all.
    if not any(len(ask.groups) > 1 for members in (*chosen, unserved) for ask in members):
        return list(unserved)
    budget = Budget(_TRIALS)
    homes = [_Home(board, group, members) for group, members in enumerate(chosen)]
    left: list[Ask] = []
    hopeless: set[int] = set()
    for ask in unserved:
        if ask.demand.pod.gang or ask.shape in hopeless:
            left.append(ask)
        elif not _find(homes, ask, budget):
            hopeless.add(ask.shape)
            left.append(ask)
    return left


class _Home:
    """One group with those who are chosen for it."""

    def __init__(self, board: Board, group: int, members: list[Ask]) -> None:
        self.group = group
        self.members = members
        self._tally = Tally.of(board, group)
        self._wanted: Counter[str] = Counter()
        for ask in members:
            self._count(ask, 1)

    def _count(self, ask: Ask, sign: int) -> None:
        self._tally.cpu -= sign * ask.cpu
        self._tally.memory -= sign * ask.memory
        self._tally.pods -= sign
        for resource, count in ask.demand.wants:
            self._wanted[resource] += sign * count

    def take(self, ask: Ask) -> None:
        self.members.append(ask)
        self._count(ask, 1)

    def give(self, ask: Ask) -> None:
        self.members.remove(ask)
        self._count(ask, -1)

    def has_room(self, ask: Ask, instead: Ask | None, budget: Budget) -> bool:
        """Whether it could be chosen too (`instead` of another)."""
        tally = self._tally
        cpu, memory = (instead.cpu, instead.memory) if instead else (0, 0)
        if tally.cpu + cpu < ask.cpu or tally.memory + memory < ask.memory or tally.pods + bool(instead) < 1:
            return False
        if not budget.spend():
            return False
        wanted = self._wanted + Counter(dict(ask.demand.wants))
        if instead is not None:
            wanted -= Counter(dict(instead.demand.wants))
        return tally.holds(wanted)


def _find(homes: Sequence[_Home], ask: Ask, budget: Budget) -> bool:
    for group in ask.groups:
        if homes[group].has_room(ask, None, budget):
            homes[group].take(ask)
            return True
    for group in ask.groups:
        for other in _who_may_leave(homes[group], ask):
            if not homes[group].has_room(ask, other, budget):
                continue
            for home in (homes[further] for further in other.groups if further != group):
                if home.has_room(other, None, budget):
                    homes[group].give(other)
                    home.take(other)
                    homes[group].take(ask)
                    return True
    return False


def _who_may_leave(home: _Home, ask: Ask) -> Iterator[Ask]:
    """One of each shape, those that hold the same partitions first."""
    resources = {name for name, _ in ask.demand.wants}
    seen: dict[int, Ask] = {}
    for other in home.members:
        if len(other.groups) > 1 and not other.demand.pod.gang:
            seen.setdefault(other.shape, other)
    yield from sorted(seen.values(), key=lambda other: _unlike(other, resources))


def _unlike(ask: Ask, resources: Iterable[str]) -> tuple[bool, int, int, int]:
    alike = sum(count for name, count in ask.demand.wants if name in resources)
    return (not alike, -alike, ask.cpu, ask.shape)

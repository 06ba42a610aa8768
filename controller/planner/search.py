"""Exhaustive search over a few devices: who goes where, so that most are served and least is changed.

In go seekers with every way to serve each of them, and the spots (devices) that these name; out comes the best way to
deal them, if it is better than the present one: more served, level by level from the top, or as many at a lower cost.
Branches that cannot beat the best are cut off, and the trials are counted: when they are used up, the best one found so
far counts. The board is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.planner.asks import Ask
from controller.planner.clearing import Budget
from controller.planner.contents import Content, Contents
from controller.planner.devices import Device


@dataclass(slots=True, kw_only=True, eq=False)
class Spot:
    """A device with what the seekers are given on it."""

    device: Device
    kind: int
    """Its number among `Contents`: equal for devices that are alike."""
    content: Content
    cost: int


@dataclass(slots=True, kw_only=True, eq=False)
class Space:
    """What a node has left for seekers."""

    cpu: int
    memory: int
    pods: int


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a seeker: for each partition the spot and the position of its resource."""

    node: int
    units: tuple[tuple[int, int], ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Seeker:
    ask: Ask
    level: int
    """0 is the highest."""
    must: bool
    """It may be moved, but not left out."""
    options: Sequence[Option]
    """Shared by seekers that are alike."""


Served = tuple[int, ...]
"""How many seekers of each level."""


@dataclass(slots=True, kw_only=True)
class Search:
    """`seekers` are sorted: the highest level first, those that are alike side by side."""

    contents: Contents
    spots: Sequence[Spot]
    spaces: dict[int, Space]
    seekers: Sequence[Seeker]
    levels: int
    budget: Budget
    served: list[int] = field(default_factory=list)
    remaining: list[Served] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    best: list[int] | None = None
    best_served: Served = ()
    best_cost: int = 0

    def run(self, served: Served, cost: int) -> list[Option | None] | None:
        """`served` and `cost` are the present ones; None where nothing better was found."""
        self.best_served, self.best_cost = served, cost
        self.served = [0] * self.levels
        self.chosen = [-1] * len(self.seekers)
        after = [0] * self.levels
        self.remaining = [tuple(after)]
        for seeker in reversed(self.seekers):
            after[seeker.level] += 1
            self.remaining.append(tuple(after))
        self.remaining.reverse()
        self._serve(0, sum(spot.cost for spot in self.spots))
        if self.best is None:
            return None
        return [
            seeker.options[index] if index >= 0 else None for seeker, index in zip(self.seekers, self.best, strict=True)
        ]

    def _serve(self, position: int, cost: int) -> None:
        """Try everything for the seekers from this one on."""
        if position == len(self.seekers):
            served = tuple(self.served)
            if (served, -cost) > (self.best_served, -self.best_cost):
                self.best, self.best_served, self.best_cost = list(self.chosen), served, cost
            return
        seeker = self.seekers[position]
        first = self._first(position)
        if first >= 0:
            for more, index in self._priced(seeker, first):
                if not self._promising(position, cost + more):
                    break
                self._take(position, index, cost + more)
                if self.budget.steps <= 0:
                    return
        self.chosen[position] = -1
        if not seeker.must and self._promising(position + 1, cost):
            self._serve(position + 1, cost)

    def _first(self, position: int) -> int:
        """Of those that are alike, the later one has the later option; -1: none, since the one before has none."""
        if position and self.seekers[position - 1].options is self.seekers[position].options:
            return self.chosen[position - 1]
        return 0

    def _promising(self, position: int, cost: int) -> bool:
        """Whether serving all seekers from here on at no further cost would be better than the best."""
        most = tuple(here + later for here, later in zip(self.served, self.remaining[position], strict=True))
        return (most, -cost) > (self.best_served, -self.best_cost)

    def _priced(self, seeker: Seeker, first: int) -> list[tuple[int, int]]:
        """Options that fit, the cheapest first; one of several that come to the same."""
        found: list[tuple[int, int]] = []
        seen: set[tuple[int, int, Content]] = set()
        for index in range(first, len(seeker.options)):
            option = seeker.options[index]
            space = self.spaces[option.node]
            if space.cpu < seeker.ask.cpu or space.memory < seeker.ask.memory or not space.pods:
                continue
            if len(option.units) == 1:
                spot = self.spots[option.units[0][0]]
                alike = (option.node, spot.kind, spot.content)
                if alike in seen:
                    continue
                seen.add(alike)
            self.budget.spend()
            more = self._more(option)
            if more is not None:
                found.append((more, index))
        found.sort()
        return found

    def _more(self, option: Option) -> int | None:
        """What this would cost; None: it does not fit."""
        contents: dict[int, Content] = {}
        for number, resource in option.units:
            before = contents.get(number, self.spots[number].content)
            contents[number] = _with(before, resource, 1)
        more = 0
        for number, content in contents.items():
            cost = self.contents.cost(self.spots[number].kind, content)
            if cost is None:
                return None
            more += cost - self.spots[number].cost
        return more

    def _take(self, position: int, index: int, cost: int) -> None:
        """Serve one seeker so, go on with the next, and undo it."""
        seeker = self.seekers[position]
        self.chosen[position] = index
        option = seeker.options[index]
        self._book(seeker, option, 1)
        self._serve(position + 1, cost)
        self._book(seeker, option, -1)

    def _book(self, seeker: Seeker, option: Option, sign: int) -> None:
        self.served[seeker.level] += sign
        space = self.spaces[option.node]
        space.cpu -= sign * seeker.ask.cpu
        space.memory -= sign * seeker.ask.memory
        space.pods -= sign
        for number, resource in option.units:
            spot = self.spots[number]
            spot.content = _with(spot.content, resource, sign)
        for number in {number for number, _ in option.units}:
            spot = self.spots[number]
            spot.cost = self.contents.cost(spot.kind, spot.content) or 0


def _with(content: Content, position: int, more: int) -> Content:
    return (*content[:position], content[position] + more, *content[position + 1 :])

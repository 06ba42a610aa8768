"""The last touch: serve the same pods, or more, with fewer changed GPUs and fewer idle partitions destroyed.

In go the board after everybody was placed and the asks by level, out comes a board on which no level lost a place
to a lower one. A small cluster is searched as a whole, a larger one is left as it is. Bounded by a count of trials.
Pods that were promised their place, and those whose place depends on others, are not moved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations_with_replacement, islice, product

from controller.planner.asks import Ask, Taken
from controller.planner.board import Board
from controller.planner.clearing import Budget
from controller.planner.contents import Contents
from controller.planner.devices import Device, Part, Share
from controller.planner.inventory import NodeStock
from controller.planner.pools import MigPool
from controller.planner.search import Option, Search, Seeker, Space, Spot
from partitioning.placements import Placement

_SMALL = 16
"""Up to so many devices, and twice as many pods, everything is tried."""
_STEPS = 6_000
"""At most so many trials in one pass: each takes some ten microseconds."""
_MOST_WAYS = 200
"""A pod that could be served in more ways is tried in these."""


class Polisher:
    def __init__(
        self, board: Board, stocks: Sequence[NodeStock], levels: Sequence[Sequence[Ask]], fixed: Callable[[Ask], bool]
    ) -> None:
        """`fixed`: asks that stay where they are, or stay waiting."""
        self._board = board
        self._stocks = stocks
        self._level = {id(ask): number for number, level in enumerate(levels) for ask in level}
        self._levels = len(levels)
        self._movable = [ask for level in levels for ask in level if not fixed(ask)]
        self._contents = Contents(board.sizes)
        self._nothing = (0,) * len(board.sizes)

    def polish(self, steps: int) -> None:
        budget = Budget(min(steps, _STEPS))
        if budget.steps <= 0 or not self._movable:
            return
        devices = [device for devices in self._board.devices for device in devices if not device.reserved]
        if len(devices) <= _SMALL and len(self._movable) <= 2 * _SMALL:
            self._deal_anew(devices, self._movable, budget)

    def _deal_anew(self, devices: Sequence[Device], asks: Sequence[Ask], budget: Budget) -> None:
        """Search for the best way to deal these devices to these asks; who stands elsewhere too is left alone."""
        within = {id(device) for device in devices}
        members = [ask for ask in asks if all(id(device) in within for device, _ in ask.taken)]
        standing = _without(devices, members)
        spots = [self._spot(device, standing[id(device)]) for device in devices]
        seekers = self._seekers(members, spots)
        present = self._present(members, devices)
        if present is None or not seekers:
            return
        served = [0] * self._levels
        for ask in members:
            served[self._level[id(ask)]] += ask.node >= 0
        search = Search(
            contents=self._contents,
            spots=spots,
            spaces=self._spaces(members, spots),
            seekers=seekers,
            levels=self._levels,
            budget=budget,
        )
        found = search.run(tuple(served), present)
        if found is not None:
            self._commit(seekers, found, spots, standing)

    def _spot(self, device: Device, standing: Sequence[Part]) -> Spot:
        kind = self._kind(device, standing)
        return Spot(device=device, kind=kind, content=self._nothing, cost=self._contents.cost(kind, self._nothing) or 0)

    def _kind(self, device: Device, standing: Sequence[Part]) -> int:
        gpu = self._stocks[device.node].gpus[device.gpu] if device.gpu >= 0 else None
        return self._contents.kind_of(device, gpu, standing)

    def _present(self, members: Sequence[Ask], devices: Sequence[Device]) -> int | None:
        """What it costs as it stands: who has an idle partition keeps that one. None where that cannot be told."""
        total = 0
        content = {id(device): list(self._nothing) for device in devices}
        kept = {id(device): list(device.parts) for device in devices}
        for ask in members:
            for device, part in ask.taken:
                if not part.ready:
                    content[id(device)][self._board.rank[_resource_of(device, part)]] += 1
                    kept[id(device)].remove(part)
        for device in devices:
            cost = self._contents.cost(self._kind(device, kept[id(device)]), tuple(content[id(device)]))
            if cost is None:
                return None
            total += cost
        return total

    def _spaces(self, members: Sequence[Ask], spots: Sequence[Spot]) -> dict[int, Space]:
        spaces: dict[int, Space] = {}
        for spot in spots:
            room = self._board.rooms[spot.device.node]
            spaces.setdefault(spot.device.node, Space(cpu=room.cpu, memory=room.memory, pods=room.pods))
        for ask in members:
            if ask.node >= 0:
                space = spaces[ask.node]
                space.cpu, space.memory, space.pods = space.cpu + ask.cpu, space.memory + ask.memory, space.pods + 1
        return spaces

    def _seekers(self, members: Sequence[Ask], spots: Sequence[Spot]) -> list[Seeker]:
        """Hardest first within a level, those that are alike side by side."""
        options: dict[Hashable, list[Option]] = {}
        numbers: dict[Hashable, int] = {}
        keyed: list[tuple[tuple[int, ...], Ask, Hashable]] = []
        for ask in members:
            gang = bool(ask.demand.pod.gang)
            if gang and ask.node < 0:
                continue
            level = self._level[id(ask)]
            alike = (level, gang, ask.shape)
            if alike not in options:
                options[alike] = self._ways(ask, spots)
                numbers[alike] = len(numbers)
            hardest = min(self._board.rank[name] for name, _ in ask.demand.wants)
            partitions = sum(count for _, count in ask.demand.wants)
            keyed.append(((level, not gang, hardest, -partitions, -ask.cpu, numbers[alike]), ask, alike))
        keyed.sort(key=lambda each: each[0])
        return [
            Seeker(ask=ask, level=self._level[id(ask)], must=bool(ask.demand.pod.gang), options=options[alike])
            for _, ask, alike in keyed
        ]

    def _ways(self, ask: Ask, spots: Sequence[Spot]) -> list[Option]:
        """Every way to take its partitions from the spots of one node."""
        by_node: dict[int, list[int]] = {}
        for number, spot in enumerate(spots):
            if self._board.group_of[spot.device.node] in ask.groups:
                by_node.setdefault(spot.device.node, []).append(number)
        found: list[Option] = []
        for node, numbers in by_node.items():
            each = [
                combinations_with_replacement(
                    [
                        (number, self._board.rank[name])
                        for number in numbers
                        if name in spots[number].device.pool.serves
                    ],
                    count,
                )
                for name, count in ask.demand.wants
            ]
            ways = (Option(node, tuple(unit for units in way for unit in units)) for way in product(*each))
            found += islice(ways, _MOST_WAYS - len(found))
        return found

    def _commit(
        self,
        seekers: Sequence[Seeker],
        found: Sequence[Option | None],
        spots: Sequence[Spot],
        standing: Mapping[int, Sequence[Part]],
    ) -> None:
        self._board.clear([seeker.ask for seeker in seekers])
        contents = [list(spot.content) for spot in spots]
        for option in found:
            for number, resource in option.units if option is not None else ():
                contents[number][resource] += 1
        parts = [
            self._contents.parts(spot.device, spot.kind, tuple(content), standing[id(spot.device)])
            for spot, content in zip(spots, contents, strict=True)
        ]
        for seeker, option in zip(seekers, found, strict=True):
            if option is not None:
                taken: Taken = [
                    (spots[number].device, parts[number][self._board.sizes[resource]].pop(0))
                    for number, resource in option.units
                ]
                self._board.put_back(seeker.ask, option.node, taken)


def _without(devices: Sequence[Device], members: Sequence[Ask]) -> dict[int, list[Part]]:
    """The parts of devices that others than these asks hold."""
    standing = {id(device): list(device.parts) for device in devices}
    for ask in members:
        for device, part in ask.taken:
            standing[id(device)].remove(part)
    return standing


def _resource_of(device: Device, part: Part) -> str:
    if isinstance(part.what, Share):
        return part.what.resource
    if isinstance(part.what, Placement) and isinstance(device.pool, MigPool):
        profile = part.what.instance.profile
        return next(name for name, held in device.pool.profiles.items() if held == profile)
    (resource,) = device.pool.serves
    return resource

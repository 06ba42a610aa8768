"""Place the assignments of one priority level on the board, or of several that are ranked.

Takes the board and assignments in queue order; those that find a place are on the board afterwards. They are divided
among node groups; in each it is chosen whom to serve on counts, those are given what is ready as long as the others
still fit beside it, and the others are placed hardest first. What is left is filled, cheapest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from controller.model.demand import Wants
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.placement.admission import choose
from controller.planner.placement.existing_supply import deal_ready, use_ready
from controller.planner.placement.gangs import Gangs
from controller.planner.placement.shares import Scale, measure
from controller.planner.placement.split import split

_ROOMY = 0.8
"""A group whose GPUs are loaded less than this may be filled GPU by GPU."""
_REPEATED = 1_000
"""Groups of up to so many GPUs are placed twice where somebody is left out; a pod of a larger one is no per cent."""
_SPARED = 300
"""One of so many pods may go unserved, so that idle partitions are not destroyed by the dozen for it."""
Ranks = Mapping[int, int]
"""By id of an ask: lower ones are served first. Those that are missing count as 0."""


def place_once(board: Board, asks: Sequence[Ask], ranks: Ranks = MappingProxyType({})) -> Callable[[Ask], float]:
    """Returns what one of them costs, compared with the others."""
    resources = frozenset(resource for ask in asks for resource, _ in ask.demand.wants)
    _demand_everywhere(board, resources)
    scales = [measure(board, group, resources) for group in range(len(board.groups))]
    assigned, rest = split(asks, scales)
    chosen = [choose(board, group, members, scales[group], ranks) for group, members in enumerate(assigned)]
    for group, (members, others) in enumerate(chosen):
        _place_in_group(board, group, members, others, scale=scales[group], ranks=ranks)
        rest += [ask for ask in assigned[group] if ask.node < 0]
    _backfill(board, _cheapest_first(rest, scales, ranks))
    return lambda ask: _cost(ask, scales)


def _place_in_group(
    board: Board, group: int, members: Sequence[Ask], others: Sequence[Ask], *, scale: Scale, ranks: Ranks
) -> None:
    """Place the chosen members, or some of the others where too many idle partitions would have to go for members."""

    lowest = max((ranks.get(id(ask), 0) for ask in (*members, *others)), default=0)

    def lowest_of(asks: Iterable[Ask]) -> int:
        return sum(ranks.get(id(ask), 0) == lowest for ask in asks)

    def instead(left: Sequence[Ask]) -> list[Ask] | None:
        """None where a higher level would lose pods by it, or the lowest more than a small share."""
        served, _ = choose(board, group, [*left, *others], scale, ranks)
        spared = lowest_of(left) - lowest_of(served)
        fewer_higher = len(served) + spared < len(left)
        dear = fewer_higher or spared * _SPARED > lowest_of(members)
        return None if dear else sorted(served, key=_hardness(board))

    hardest_first = sorted(members, key=_hardness(board))
    left = use_ready(board, group, hardest_first, instead)
    # Where CPU or memory decides who is served, GPUs are not scarce either.
    thrifty = not others or _load(members, scale) < _ROOMY
    failed = _place_thriftily(board, group, left) if thrifty else _place_new(board, group, left)
    if failed and sum(len(pool.devices) for pool in board.groups[group].pools) <= _REPEATED:
        _failed_first(board, group, hardest_first, failed)


def settle_level(board: Board, asks: Sequence[Ask], gangs: Gangs) -> None:
    """Complete gangs or take them off, and give to others what that leaves."""
    gangs.settle(board, asks)
    for ask in sorted(asks, key=lambda ask: (ask.cpu, ask.demand.pod.created, ask.demand.pod.key)):
        if ask.node < 0 and not ask.demand.pod.gang:
            board.place(ask)


def _demand(board: Board, group: int, resources: Iterable[str]) -> None:
    """Say what is still to be placed in a group."""
    named = frozenset(resources)
    for pool in board.groups[group].pools:
        pool.demand(named)


def _demand_everywhere(board: Board, resources: Iterable[str]) -> None:
    for group in range(len(board.groups)):
        _demand(board, group, resources)


def _load(asks: Iterable[Ask], scale: Scale) -> float:
    """How much of a group's GPUs they need."""
    return sum(scale.shares(ask)[0] for ask in asks)


def _hardness(board: Board) -> Callable[[Ask], tuple[int, int, int, int]]:
    """Sort key: hardest partitions first, several before one, much CPU before little."""

    ranks: dict[Wants, tuple[int, int]] = {}

    def key(ask: Ask) -> tuple[int, int, int, int]:
        wants = ask.demand.wants
        if wants not in ranks:
            ranks[wants] = (min(board.rank[resource] for resource, _ in wants), -sum(count for _, count in wants))
        return (*ranks[wants], -ask.cpu, -ask.memory)

    return key


def _place_thriftily(board: Board, group: int, asks: Sequence[Ask]) -> list[Ask]:
    """Where all fit, on few GPUs; if that leaves somebody out, as if room were scarce."""
    _be_thrifty(board, group, True)
    failed = _place_new(board, group, asks, all_or_none=True)
    _be_thrifty(board, group, False)
    if not failed:
        return []
    board.clear(asks)
    return _place_new(board, group, asks)


def _failed_first(board: Board, group: int, asks: Sequence[Ask], failed: Sequence[Ask]) -> None:
    """Place again, those that found no node before anything idle is given away; what serves more stays."""
    all_asks = list({id(ask): ask for ask in (*asks, *failed)}.values())
    assigned_before = [(ask, ask.node, ask.taken) for ask in all_asks if ask.node >= 0]
    board.clear(all_asks)
    _demand(board, group, {resource for ask in all_asks for resource, _ in ask.demand.wants})
    for ask in failed:
        board.place(ask, (group,))
    waiting = {id(ask) for ask in failed}
    rest = [ask for ask in asks if id(ask) not in waiting]
    _place_new(board, group, use_ready(board, group, rest, lambda _: None))
    if sum(ask.node >= 0 for ask in all_asks) <= len(assigned_before):
        board.restore(all_asks, assigned_before)


def _be_thrifty(board: Board, group: int, thrifty: bool) -> None:
    for pool in board.groups[group].pools:
        pool.be_thrifty(thrifty)


def _place_new(board: Board, group: int, asks: Sequence[Ask], *, all_or_none: bool = False) -> list[Ask]:
    """Place in this order; returns those that found no node. `all_or_none`: the first of them ends it."""
    left = Counter(resource for ask in asks for resource, count in ask.demand.wants for _ in range(count))
    _demand(board, group, left)
    failed = []
    for ask in asks:
        if not board.place(ask, (group,)):
            failed.append(ask)
            if all_or_none:
                break
        done = False
        for resource, count in ask.demand.wants:
            left[resource] -= count
            if not left[resource]:
                del left[resource]
                done = True
        if done:
            _demand(board, group, left)
    return failed


def _backfill(board: Board, asks: Sequence[Ask]) -> None:
    _demand_everywhere(board, ())
    for ask in deal_ready(board, asks):
        board.place(ask)


def _cheapest_first(asks: Iterable[Ask], scales: Sequence[Scale], ranks: Ranks) -> list[Ask]:
    def key(ask: Ask) -> tuple[int, float, int, tuple[str, str]]:
        return (ranks.get(id(ask), 0), _cost(ask, scales), ask.demand.pod.created, ask.demand.pod.key)

    return sorted(asks, key=key)


def _cost(ask: Ask, scales: Sequence[Scale]) -> float:
    """The largest share of a whole group that an ask needs, in the group where it is least."""
    return min((max(scales[group].shares(ask)) for group in ask.groups), default=0.0)

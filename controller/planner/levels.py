"""Place the asks of one priority level on the board.

In go the board and the asks of one level in queue order; asks that find a place stand on the board after: divide
them among groups, choose whom to serve in each, give those what is ready as long as the others still fit beside it,
place the others hardest first, fill what is left with anybody, cheapest first, and exchange what stands for more;
in a small cluster try it in other orders too, and move those of higher levels for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from controller.model.demand import Wants
from controller.planner.again import Again, is_small
from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.choose import choose
from controller.planner.clearing import Budget
from controller.planner.deal import deal_ready, use_ready
from controller.planner.gangs import Gangs
from controller.planner.improve import Improver
from controller.planner.limit import Limit
from controller.planner.prices import Scale, measure
from controller.planner.rehome import rehome
from controller.planner.split import split

_ROOMY = 0.8
"""A group whose GPUs are loaded less than this may be filled GPU by GPU."""
_REPEATED = 1_000
"""Groups of up to so many GPUs are placed twice where somebody is left out; a pod of a larger one is no per cent."""
_PER_CENT = 100
"""Of fewer, a single one is more than a per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much may be tried to serve more of one level."""

    steps: int
    """Exchanges."""
    placings: int
    """In other orders, in a small cluster."""
    anew: Budget
    """Asks that may be placed a second time, together with those of higher levels: for all levels of a pass."""


def place_level(board: Board, asks: Sequence[Ask], effort: Effort, limit: Limit, higher: Sequence[Ask]) -> int:
    """Nothing is tried for more than the limit says is possible. Asks of `higher` levels stand and may be moved.

    Returns how many placings in other orders were tried.
    """
    scales = _place_once(board, asks)
    if higher and any(ask.node < 0 for ask in asks) and effort.anew.spend(len(asks) + len(higher)):
        _place_with_higher(board, asks, higher)
    # Gangs are exchanged whole or not at all, so not one by one.
    single = [ask for ask in asks if not ask.demand.pod.gang]
    placed, waiting = [ask for ask in single if ask.node >= 0], [ask for ask in single if ask.node < 0]
    Improver(board, lambda ask: cost(ask, scales), effort.steps).improve(placed, waiting, len(placed) + limit.left)
    proof = limit.tighten() if is_small(board) and effort.placings else None
    if proof is None:
        return 0
    _demand_everywhere(board, _resources([*asks, *higher]))
    # Where hundreds find a place, one more is less than a per cent.
    placings = effort.placings * _PER_CENT // max(_PER_CENT, limit.most)
    return Again(board, single, higher, price=proof.price, hardness=_hardness(board)).place(limit.left, placings)


def _resources(asks: Iterable[Ask]) -> frozenset[str]:
    return frozenset(resource for ask in asks for resource, _ in ask.demand.wants)


def _place_with_higher(board: Board, asks: Sequence[Ask], higher: Sequence[Ask]) -> None:
    """Place both anew: those of higher levels stood where they were best for themselves. What serves more stays."""
    both = [*higher, *asks]
    stood = [(ask, ask.node, ask.taken) for ask in both if ask.node >= 0]
    board.clear(both)
    _place_once(board, both, {id(ask) for ask in higher})
    if any(ask.node < 0 for ask in higher) or sum(ask.node >= 0 for ask in both) <= len(stood):
        board.restore(both, stood)


def _place_once(board: Board, asks: Sequence[Ask], first: Collection[int] = ()) -> list[Scale]:
    """Asks in `first` are served before others. Returns what was there for them."""
    resources = _resources(asks)
    _demand_everywhere(board, resources)
    scales = [measure(board, group, resources) for group in range(len(board.groups))]
    assigned, rest = split(asks, scales)
    chosen: list[list[Ask]] = []
    unserved: list[Ask] = []
    roomy: list[bool] = []
    for group, members in enumerate(assigned):
        served, others = choose(board, group, members, scales[group], first)
        chosen.append(served)
        unserved += others
        roomy.append(not others)
    if unserved:
        rest += rehome(board, chosen, cheapest_first(unserved, scales, first))
    for group, members in enumerate(chosen):
        hardest_first = sorted(members, key=_hardness(board))
        left = use_ready(board, group, hardest_first)
        # Where CPU or memory decides who is served, GPUs are not scarce either.
        thrifty = roomy[group] or _load(members, scales[group]) < _ROOMY
        failed = _place_thriftily(board, group, left) if thrifty else _place_new(board, group, left)
        if failed and sum(len(pool.devices) for pool in board.groups[group].pools) <= _REPEATED:
            failed = _failed_first(board, group, hardest_first, failed)
        rest.extend(failed)
    _backfill(board, cheapest_first(rest, scales, first))
    return scales


def settle_level(board: Board, asks: Sequence[Ask], gangs: Gangs) -> None:
    """Complete gangs or take them off, and give to others what that leaves."""
    gangs.settle(board, asks)
    for ask in sorted(asks, key=lambda ask: (ask.cpu, ask.demand.pod.created, ask.demand.pod.key)):
        if ask.node < 0 and not ask.demand.pod.gang:
            board.place(ask)


def demand(board: Board, group: int, resources: Iterable[str]) -> None:
    """Say what is still to be placed in a group."""
    named = frozenset(resources)
    for pool in board.groups[group].pools:
        pool.demand(named)


def _demand_everywhere(board: Board, resources: Iterable[str]) -> None:
    for group in range(len(board.groups)):
        demand(board, group, resources)


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


def _failed_first(board: Board, group: int, hardest_first: Sequence[Ask], failed: list[Ask]) -> list[Ask]:
    """Place again, those that found no node before anything idle is given away; what serves more stays."""
    stood = [(ask, ask.node, ask.taken) for ask in hardest_first if ask.node >= 0]
    board.clear(hardest_first)
    demand(board, group, {resource for ask in hardest_first for resource, _ in ask.demand.wants})
    for ask in failed:
        board.place(ask, (group,))
    waiting = {id(ask) for ask in failed}
    _place_new(board, group, use_ready(board, group, [ask for ask in hardest_first if id(ask) not in waiting]))
    missed = [ask for ask in hardest_first if ask.node < 0]
    if len(missed) < len(failed):
        return missed
    board.restore(hardest_first, stood)
    return failed


def _be_thrifty(board: Board, group: int, thrifty: bool) -> None:
    for pool in board.groups[group].pools:
        pool.be_thrifty(thrifty)


def _place_new(board: Board, group: int, asks: Sequence[Ask], *, all_or_none: bool = False) -> list[Ask]:
    """Place in this order; returns those that found no node. `all_or_none`: the first of them ends it."""
    left = Counter(resource for ask in asks for resource, count in ask.demand.wants for _ in range(count))
    demand(board, group, left)
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
            demand(board, group, left)
    return failed


def _backfill(board: Board, asks: Sequence[Ask]) -> None:
    _demand_everywhere(board, ())
    for ask in deal_ready(board, asks):
        board.place(ask)


def cheapest_first(asks: Iterable[Ask], scales: Sequence[Scale], first: Collection[int]) -> list[Ask]:
    """Those in `first` before all others."""

    def key(ask: Ask) -> tuple[bool, float, int, tuple[str, str]]:
        return (id(ask) not in first, cost(ask, scales), ask.demand.pod.created, ask.demand.pod.key)

    return sorted(asks, key=key)


def cost(ask: Ask, scales: Sequence[Scale]) -> float:
    """The largest share of a whole group that an ask needs, in the group where it is least."""
    return min((max(scales[group].shares(ask)) for group in ask.groups), default=0.0)

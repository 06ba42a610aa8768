"""Place the pods of all priority levels on the board, so that no lower level costs a higher one a pod.

Takes the board and the assignments by level, the highest first. All are first placed in one go, admitted level by level
on counts: a level that is placed alone does not see what the next one needs. That stays where every level but the last
is served in full. Otherwise the levels are placed one after the other, each on what the others leave it, then those
that can move are placed in one go, and the better of the two stays, compared from the top. Never moves a pod with a
reservation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from controller.model.demand import Demand
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.bounds.aggregate import upper_bound
from controller.planner.improvement.exchange import exchange
from controller.planner.placement.ageing import Ageing, Reservation, reserve
from controller.planner.placement.constrained import Singly
from controller.planner.placement.existing_supply import expect_binding, keep_reservations
from controller.planner.placement.gangs import GangKey, Gangs, key_of
from controller.planner.strategy.level import place_once, settle_level

Levels = Sequence[Sequence[Ask]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every level."""

    reservations: Mapping[str, int]
    gangs: Gangs
    singly: Singly
    improve_steps: int
    most: int
    """No plan places more pods than this."""
    ageing: Ageing
    report: Callable[[str], None]
    """Called with the name of each phase after it."""


def by_level(demands: Sequence[Demand], aged: Collection[str]) -> list[list[Demand]]:
    """Demands by priority level, the highest first; `demands` are in queue order, and stay so within a level.

    An aged pod counts as the next higher priority that any other pod has, or as a level of its own above all. A gang is
    in one level, that of its highest pod.
    """
    priorities = sorted({demand.pod.priority for demand in demands})
    ranks: list[int] = []
    of_gang: dict[GangKey, int] = {}
    for demand in demands:
        pod = demand.pod
        rank = bisect_right(priorities, pod.priority) + (pod.uid in aged)
        gang = key_of(pod)
        if gang is not None:
            of_gang[gang] = max(rank, of_gang.get(gang, rank))
        ranks.append(rank)
    found: dict[int, list[Demand]] = {}
    for demand, rank in zip(demands, ranks, strict=True):
        gang = key_of(demand.pod)
        found.setdefault(rank if gang is None else of_gang[gang], []).append(demand)
    return [found[rank] for rank in sorted(found, reverse=True)]


def moves_alone(ask: Ask, rules: Rules) -> bool:
    """It may be placed for itself: neither with a gang, nor where others or volumes decide."""
    return ask.demand.tried and not ask.demand.pod.gang and ask not in rules.singly


def place_levels(board: Board, levels: Levels, rules: Rules) -> Reservation | None:
    """Returns the reservation that was made for an aged ask."""
    all_asks = [ask for level in levels for ask in level]
    upper = [ask for level in levels[:-1] for ask in level if ask.demand.tried]
    if upper and upper_bound(board, upper) == len(upper):
        _place(board, levels, rules, rules.most)
        if all(ask.node >= 0 for ask in upper):
            return _reserve(board, levels[-1:], rules)
        board.clear(all_asks)
        rules.gangs.found.clear()
    reservation: Reservation | None = None
    left = rules.most
    for number, members in enumerate(levels):
        left -= _place(board, [members], rules, left)
        reservation = reservation or _reserve(board, levels[number:], rules)
    _place_together(board, levels, rules, None if reservation is None else reservation.ask)
    return reservation


def _reserve(board: Board, levels: Levels, rules: Rules) -> Reservation | None:
    """For a pod of the first of these levels; the others were not placed yet."""
    members = levels[0] if levels else ()
    if not any(ask.demand.tried and ask.demand.pod.uid in rules.ageing.aged for ask in members):
        return None
    for lower in levels[1:]:  # they hold partitions as much as bound pods do
        keep_reservations(board, lower, rules.reservations, rules.singly)
    reservation = reserve(board, members, rules.ageing)
    rules.report("reserved")
    return reservation


def _place(board: Board, levels: Levels, rules: Rules, most: int) -> int:
    """Place these levels in one go, the higher ones admitted first; returns how many are placed, at most `most`."""
    all_asks = [ask for level in levels for ask in level]
    tried = [ask for ask in all_asks if ask.demand.tried]
    keep_reservations(board, all_asks, rules.reservations, rules.singly)
    rules.report("reservations")
    expect_binding(board, [ask for ask in all_asks if ask.node < 0], rules.singly)
    rules.report("about to bind")
    waiting = [ask for ask in tried if ask.node < 0]
    alike = [
        [ask for ask in level if ask.demand.tried and ask.node < 0 and ask not in rules.singly] for level in levels
    ]
    _place_alike(board, alike, rules, most - (len(tried) - len(waiting)))
    rules.singly.place(ask for ask in waiting if ask in rules.singly)
    rules.report("under constraints")
    if rules.gangs.needs:
        settle_level(board, tried, rules.gangs)
        rules.report("gangs")
    return sum(ask.node >= 0 for ask in tried)


def _place_together(board: Board, levels: Levels, rules: Rules, helped: Ask | None) -> None:
    """Place again in one go all that can move, where levels below the highest miss pods; what serves more stays.

    `helped`: the aged pod for which others may have left their place.
    """
    movable = [[ask for ask in level if ask is not helped and _moves(ask, rules)] for level in levels]
    if all(ask.node >= 0 for level in movable[1:] for ask in level):
        return
    served, all_asks = _served(movable), [ask for level in movable for ask in level]
    before = [(ask, ask.node, ask.taken) for ask in all_asks if ask.node >= 0]
    board.clear(all_asks)
    others = sum(ask.node >= 0 for level in levels for ask in level if ask.demand.tried)
    _place_alike(board, movable, rules, rules.most - others)
    if _served(movable) <= served:
        board.restore(all_asks, before)
    rules.report("together")


def _place_alike(board: Board, levels: Levels, rules: Rules, most: int) -> None:
    """At most `most` of these can find a place."""
    ranks = {id(ask): number for number, level in enumerate(levels) for ask in level}
    cost = place_once(board, [ask for level in levels for ask in level], ranks)
    rules.report("greedy")
    left = most - sum(_served(levels))
    for level in levels:
        # Gangs are exchanged whole or not at all, so not one by one.
        left -= exchange(board, [ask for ask in level if not ask.demand.pod.gang], cost, rules.improve_steps, left)
    rules.report("exchanged")


def _moves(ask: Ask, rules: Rules) -> bool:
    reserved = ask.node >= 0 and rules.reservations.get(ask.demand.pod.uid) == ask.node
    return moves_alone(ask, rules) and not reserved


def _served(levels: Levels) -> tuple[int, ...]:
    return tuple(sum(ask.node >= 0 for ask in level) for level in levels)

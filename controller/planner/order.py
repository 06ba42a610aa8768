"""Place all levels on the board, strictly one after the other in what counts, together where that costs nobody.

In go the board and the asks by level, the highest first. Where there may be room for everybody, all are first placed as
one level: a level that is placed alone does not see what the next ones need. That stands if it serves every level at
least as well as placing them one by one does, compared from the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.planner.again import is_small
from controller.planner.asks import Ask, Taken
from controller.planner.board import Board
from controller.planner.clearing import Budget
from controller.planner.deal import expect_binding, keep_promises
from controller.planner.gangs import Gangs
from controller.planner.levels import Effort, place_level, settle_level
from controller.planner.limit import Limit
from controller.planner.reserve import Ageing, Reservation, reserve
from controller.planner.singly import Singly

Levels = Sequence[Sequence[Ask]]
_PLACINGS = 16
"""In other orders, for each step that may be spent on improvement: each takes some microseconds."""
_PLACED_ANEW = 20_000
"""Asks, in all levels of one pass: so many take half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every level."""

    promises: Mapping[str, int]
    gangs: Gangs
    singly: Singly
    improve_steps: int
    limit: Limit
    ageing: Ageing


def moves_alone(ask: Ask, rules: Rules) -> bool:
    """It may be placed for itself: neither with a gang, nor where others or volumes decide."""
    return ask.demand.tried and not ask.demand.pod.gang and ask not in rules.singly


def place_levels(board: Board, levels: Levels, rules: Rules) -> Reservation | None:
    """Returns the reservation that was made for an aged ask."""
    everybody = [ask for level in levels for ask in level]
    tried = sum(ask.demand.tried for ask in everybody)
    if len(levels) < 2 or rules.limit.most < tried:
        return _place(board, levels, rules, reserving=True)
    _place(board, [everybody], rules, reserving=False)
    together, served, found = _standing(everybody), _served(levels), dict(rules.gangs.found)
    if served == tuple(sum(ask.demand.tried for ask in level) for level in levels):
        return None
    board.clear(everybody)
    rules.gangs.found.clear()
    reservation = _place(board, levels, rules, reserving=True)
    if served > _served(levels) and (reservation is None or reservation.ask in [ask for ask, _, _ in together]):
        if reservation is not None and reservation.device.reserved:
            board.release(reservation.ask, reservation.device)
        board.restore(everybody, together)
        rules.gangs.found.clear()
        rules.gangs.found.update(found)
        return None
    return reservation


def _place(board: Board, levels: Levels, rules: Rules, *, reserving: bool) -> Reservation | None:
    reservation: Reservation | None = None
    placings, anew = _PLACINGS * rules.improve_steps, Budget(_PLACED_ANEW)
    movable: list[Ask] = []
    stood: list[Ask] = []
    for number, members in enumerate(levels):
        tried = [ask for ask in members if ask.demand.tried]
        limit = Limit(board, tried, stood) if len(levels) > 1 and is_small(board) else rules.limit
        keep_promises(board, members, rules.promises, rules.singly)
        expect_binding(board, [ask for ask in members if ask.node < 0], rules.singly)
        open_asks = [ask for ask in tried if ask.node < 0]
        alike = [ask for ask in open_asks if ask not in rules.singly]
        # A pass with many levels must not take many times as long.
        effort = Effort(steps=rules.improve_steps, placings=placings // (len(levels) - number), anew=anew)
        placings -= place_level(board, alike, effort, limit, movable)
        rules.singly.place(ask for ask in open_asks if ask in rules.singly)
        if rules.gangs.needs:
            settle_level(board, tried, rules.gangs)
        if reserving and reservation is None and any(ask.demand.pod.uid in rules.ageing.aged for ask in tried):
            for lower in levels[number + 1 :]:  # they hold partitions as much as bound pods do
                keep_promises(board, lower, rules.promises, rules.singly)
            reservation = reserve(board, members, rules.ageing)
        movable += [ask for ask in alike if ask.node >= 0 and not ask.demand.pod.gang]
        stood += [ask for ask in tried if ask.node >= 0]
    return reservation


def _served(levels: Levels) -> tuple[int, ...]:
    return tuple(sum(ask.node >= 0 and ask.demand.tried for ask in level) for level in levels)


def _standing(asks: Sequence[Ask]) -> list[tuple[Ask, int, Taken]]:
    return [(ask, ask.node, list(ask.taken)) for ask in asks if ask.node >= 0]

"""Places all pods, then again with those first that were left out: of a few tries the best stays.

Takes the board and the assignments by level, as `strategy` does, whose whole work each try repeats: the order alone
differs, and a pod comes the earlier the more often a step left it out. Ends where no plan places more, where places
were searched often enough, or where a quarter of the pass's work is used up. Never keeps a try that serves fewer pods
of a level, unless it serves more of a higher one, nor one in which fewer of a level are where they had a reservation.
"""

from bisect import bisect_right
from collections.abc import Collection, Hashable, Sequence
from itertools import chain
from operator import ge

from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.placement.gangs import key_of
from controller.planner.strategy import Found, Levels, Rules, begin_again, place_levels

_IN_VAIN, _IN_VAIN_FOR_ALL = 2, 6
"""Tries in a row that serve no more end the search; there are more of them where, by the bound, all pods may fit."""
_WORK = 2_000
"""Searches for a place before the last try: some tenths of a second, and none for 2,000 pods."""


def place_best(board: Board, levels: Levels, rules: Rules) -> None:
    """Place all of them; what cannot be served stays without a place."""
    place_levels(board, levels, rules)
    members = list(chain.from_iterable(levels))
    best = last = Found(levels, rules)
    most, in_vain = board.work + _WORK - len(members), 0
    patience = _IN_VAIN_FOR_ALL if rules.most == sum(one.tried for one in members) else _IN_VAIN
    while in_vain < patience and sum(best.served) < rules.most and board.work < most:
        if rules.constrained.unexamined or not board.effort.spare():
            break
        for one in members:
            one.left_out = one.missed = one.missed + (not one.placed)
        begin_again(board, levels, rules)
        place_levels(board, levels, rules)
        last = Found(levels, rules)
        if last.served > best.served and all(map(ge, last.kept, best.kept)):
            best, in_vain = last, 0
        else:
            in_vain += 1
    if best is not last:
        best.put_back(board)


def by_level(assignments: Sequence[Assignment], aged: Collection[str]) -> list[list[Assignment]]:
    """By priority level, the highest first; `assignments` are in queue order, and stay so within a level.

    An aged pod counts as the next higher priority that any other pod has, or as a level of its own above all. A gang is
    in one level, that of its highest pod.
    """
    priorities = sorted({one.pod.priority for one in assignments})
    ranks: dict[Hashable, int] = {}
    for one in assignments:
        rank, unit = bisect_right(priorities, one.pod.priority) + (one.pod.uid in aged), key_of(one.pod) or id(one)
        ranks[unit] = max(rank, ranks.get(unit, rank))
    found: dict[int, list[Assignment]] = {}
    for one in assignments:
        found.setdefault(ranks[key_of(one.pod) or id(one)], []).append(one)
    return [found[rank] for rank in sorted(found, reverse=True)]

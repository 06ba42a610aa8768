"""Admits pods that every node group has turned away, where admitted pods can make room for them in other groups.

Each group admits pods by itself, and what it has left serves none of those that it turned away. Small pods of a group
that fit into what other groups have left go there, as many as it takes until a larger one fits in their place. Tested
on counts, like admission. Never turns an admitted pod away, and never moves pods of gangs.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence

from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.placement.admission import Admitted
from controller.planner.placement.packing_check import PackingCheck

_MOST_MOVED = 8
"""So many pods make room for one."""

Move = tuple[Assignment, int]
"""A pod, and the group that it goes to."""


def make_room(board: Board, admitted: Sequence[Admitted], cost: Callable[[Assignment], float]) -> None:
    """Changes `admitted`, while the board has trials left.

    The pods that were turned away have their turn level by level, the cheapest first.
    """
    waiting = [(one, home) for home in admitted for one in home.others if not one.pod.gang]
    if len(admitted) < 2 or not waiting:
        return
    movable = [sorted(filter(_movable, home.members), key=cost) for home in admitted]
    moves: dict[int, list[Move]] = {}
    in_vain: set[Hashable] = set()
    for one, home in sorted(waiting, key=lambda each: (each[0].rank, cost(each[0]))):
        if (one.rank, one.wants, one.groups) in in_vain:
            continue
        for group in one.groups:
            if board.trials <= 0:
                return
            board.trials -= 1
            if group not in moves:
                moves[group] = _moves(board, group, movable[group], admitted)
            needed = _needed(one, admitted[group].packing, [moved for moved, _ in moves[group]])
            if needed is not None:
                for moved, target in moves[group][:needed]:
                    movable[group].remove(moved)
                    admitted[target].change([moved])
                admitted[group].change([one], [moved for moved, _ in moves[group][:needed]])
                home.others.remove(one)
                moves.clear()
                break
        else:
            in_vain.add((one.rank, one.wants, one.groups))  # the next ones like it cost as much or more


def _movable(one: Assignment) -> bool:
    return len(one.groups) > 1 and one.demand.single is not None and not one.pod.gang


def _moves(board: Board, group: int, movable: Sequence[Assignment], admitted: Sequence[Admitted]) -> list[Move]:
    """Pods that can leave a group together, the cheapest first, and where each goes."""
    packings = [target.packing for target in admitted]

    def fits(one: Assignment, other: int) -> bool:
        """Tried once: pods that may each use groups of their own are alike in each of these."""
        what, target = (one.wants, one.needs), admitted[other]
        if what in target.full:
            return False
        board.trials -= 1
        found = packings[other].fits([one])
        if not found and packings[other] is target.packing:
            target.full.add(what)
        return found

    moves: list[Move] = []
    in_vain: set[Hashable] = set()
    for one in movable:
        if len(moves) == _MOST_MOVED or (one.wants, one.groups) in in_vain or board.trials <= 0:
            continue
        target = next((other for other in one.groups if other != group and fits(one, other)), None)
        if target is None:
            in_vain.add((one.wants, one.groups))
        else:
            moves.append((one, target))
            packings[target] = packings[target].with_packed([one])
    return moves


def _needed(one: Assignment, packing: PackingCheck, leaving: Sequence[Assignment]) -> int | None:
    """How many of these must leave before the pod fits; None where it does not even without all of them."""

    def fits(count: int) -> bool:
        return packing.with_packed((), leaving[:count]).fits([one])

    return bisect_left(range(len(leaving)), True, key=fits) if fits(len(leaving)) else None

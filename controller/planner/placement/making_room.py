"""Admits pods that every node group has turned away, where admitted pods can make room for them in other groups.

Each group admits pods by itself, and what it has left serves none of those that it turned away. Small pods of a group
that fit into what other groups have left go there, as many as it takes until a larger one fits in their place. Tested
on counts, like admission. Never turns an admitted pod away, and never moves pods of gangs.
"""

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
    in_vain: set[Hashable] = set()
    for one, home in sorted(waiting, key=lambda each: (each[0].rank, cost(each[0]))):
        if board.trials <= 0 or (one.rank, one.wants, one.groups) in in_vain:
            continue
        for group in one.groups:
            board.trials -= 1
            moves = _moves(board, one, group, movable[group], admitted)
            if moves is not None:
                for moved, target in moves:
                    movable[group].remove(moved)
                    admitted[target].change([moved])
                admitted[group].change([one], [moved for moved, _ in moves])
                home.others.remove(one)
                break
        else:
            in_vain.add((one.rank, one.wants, one.groups))  # the next ones like it cost as much or more


def _movable(one: Assignment) -> bool:
    return len(one.groups) > 1 and one.demand.single is not None and not one.pod.gang


def _moves(
    board: Board, one: Assignment, group: int, movable: Sequence[Assignment], admitted: Sequence[Admitted]
) -> list[Move] | None:
    """Pods that can leave a group together so that the pod fits there, the cheapest first, and where each goes."""
    packings, moves, in_vain = dict[int, PackingCheck](), list[Move](), set[Hashable]()

    def fits(one: Assignment, group: int) -> bool:
        """Tried once: pods that may each use groups of their own are alike in each of these."""
        what, home = (one.wants, one.needs), admitted[group]
        packing = packings.setdefault(group, home.packing)
        if board.trials <= 0 or (packing is home.packing and what in home.full):
            return False
        board.trials -= 1
        found = packing.fits([one])
        if not found and packing is home.packing:
            home.full.add(what)
        return found

    if fits(one, group):
        return moves
    for moved in movable:
        if (moved.wants, moved.groups) in in_vain:
            continue
        target = next((other for other in moved.groups if other != group and fits(moved, other)), None)
        if target is None:
            in_vain.add((moved.wants, moved.groups))
            continue
        moves.append((moved, target))
        packings[target] = packings[target].with_packed([moved])
        packings[group] = packings[group].with_packed((), [moved])
        if fits(one, group):
            return moves
        if len(moves) == _MOST_MOVED:
            break
    return None

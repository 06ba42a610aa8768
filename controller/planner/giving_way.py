"""Lets pods of lower levels give their places to pods of upper levels that wait, as few as possible.

Takes the board and the pods that are placed in one go, by level. On one node after the other, pods are lifted until the
one that waits has room, those of the lowest level first; those that still fit then stay. Others of its own level and
above must find a place elsewhere, or the trial counts for nothing. The node on which the fewest lose their place,
compared from the top, is taken. Bounded by a count of lifted pods and of searches. Never costs a pod of the same level
or of an upper one its place, and never moves gangs.
"""

from bisect import insort
from collections.abc import Callable, Sequence

from controller.planner.board.assignment import Assignment, Taken
from controller.planner.board.board import Board

_PROBES = 16
"""So many nodes on which it would have room are compared for one pod."""
_SEARCH, _ASKED = 5, 200
"""To search a group takes as long as to lift so many pods; to ask filters, as to lift one for each so many pods."""

Lifted = list[tuple[Assignment, int, Taken]]
"""Pods, their nodes, and what they had there."""
Lost = tuple[int, ...]
"""Ranks of the pods that lose their places, negative, upper levels first: fewer and lower ones compare as less."""


def give_way(
    board: Board, levels: Sequence[Sequence[Assignment]], cost: Callable[[Assignment], float], steps: int
) -> int:
    """Lift up to `steps` pods. Returns how many more are placed; less than 0: fewer are."""
    members = [one for level in levels for one in level if not one.pod.gang]
    waiting = [one for one in members if not one.placed and one.rank < len(levels) - 1]
    if not waiting:
        return 0
    before = sum(one.placed for one in members)
    givers = _Givers(board, sorted(members, key=lambda one: (-one.rank, -cost(one))), steps)
    in_vain: list[Assignment] = []
    for one in waiting:
        if givers.steps > 0 and not any(_needs_no_less(one, other) for other in in_vain) and not givers.serve(one):
            in_vain.append(one)
    return sum(one.placed for one in members) - before


def _needs_no_less(one: Assignment, other: Assignment) -> bool:
    """Where the other, of its level or above, found no place, this one finds none."""
    kinds = [(each.wants, each.groups, each.demand.host_ports, each.constrained) for each in (one, other)]
    return not one.constrained and kinds[0] == kinds[1] and one.needs.fits(other.needs)


class _Givers:
    """Pods that may give way, those of each node in the order in which they should."""

    def __init__(self, board: Board, members: Sequence[Assignment], steps: int) -> None:
        self._board, self.steps = board, steps
        self._order = {id(one): number for number, one in enumerate(members)}
        self._on_node: dict[int, list[Assignment]] = {}
        for one in [each for each in members if each.placed]:
            self._on_node.setdefault(one.node, []).append(one)

    def serve(self, one: Assignment) -> bool:
        """Place this one where the fewest lose their places; False: no node has room, or no steps are left."""
        found: list[tuple[Lost, int]] = []
        self.steps -= _SEARCH
        for node in self._on_node:
            if self._board.group_of[node] in one.groups and self.steps > 0 and len(found) < _PROBES:
                lifted, lost = self._take_over(one, node)
                self._board.restore((one, *(each for each, _, _ in lifted)), lifted)
                found += [] if lost is None else [(lost, node)]
        lifted, lost = self._take_over(one, min(found)[1]) if found else ([], None)
        if lost is None:  # or too few steps were left to do the same once more
            self._board.restore((one, *(each for each, _, _ in lifted)), lifted)
            return False
        for each, node, _ in lifted:
            self._on_node[node].remove(each)
            if self._placed(each):
                self._enter(each)
        self._enter(one)
        return True

    def _placed(self, one: Assignment) -> bool:
        """Where it was, or elsewhere."""
        self.steps -= 0 if one.placed else _SEARCH * len(one.groups)
        return one.placed or (self.steps > 0 and self._board.place(one))

    def _enter(self, one: Assignment) -> None:
        insort(self._on_node.setdefault(one.node, []), one, key=lambda each: self._order[id(each)])

    def _take_over(self, one: Assignment, node: int) -> tuple[Lifted, Lost | None]:
        """Those that were lifted, and what that costs if the pod is placed now; None: it may not stay."""
        board, others = self._board, self._on_node[node]
        lower = [each for each in others if each.rank > one.rank]
        equal = [each for each in reversed(others) if each.rank <= one.rank and not each.constrained]
        lifted: Lifted = []
        self.steps -= 1
        for each in lower + equal:
            lifted.append((each, *board.lift(each)))
            self.steps -= 1 + (one.constrained or each.constrained) * (len(self._order) // _ASKED)
            if board.place_on(one, node):
                break
        if not one.placed:
            return lifted, None
        for each, _, _ in reversed(lifted):
            board.place_on(each, node)
        board.settle((node,))
        left = [each for each, _, _ in lifted if not each.placed]
        if not all(each.rank > one.rank or self._placed(each) for each in left):
            return lifted, None
        return lifted, tuple(sorted((-each.rank for each in left if each.rank > one.rank), reverse=True))

"""Moves that place more pods of a level, or an older one of two.

`exchange` takes one pod off and places two others instead, or one other while the first finds another place: the last
per cent that greedy placing leaves. `prefer_older` gives the place of one pod to one that came before it. Both are
bounded by a count of trials, never by a clock, and never leave fewer pods placed.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board

_SHAPES = 64
"""How many shapes of waiting pods are tried on one node, cheapest first."""


def exchange(
    board: Board, assignments: Sequence[Assignment], cost: Callable[[Assignment], float], steps: int, most: int
) -> int:
    """No more than `most` of those that wait can find a place. Returns how many more are placed."""
    exchanger = _Exchange(board, cost, steps, most)
    while exchanger.sweep(assignments):
        pass
    return exchanger.gained


@dataclass(slots=True)
class _Exchange:
    board: Board
    cost: Callable[[Assignment], float]
    steps: int
    most: int
    waiting: dict[int, list[Assignment]] = field(default_factory=dict)
    """By shape, the cheapest first, of each the oldest first."""
    gained: int = 0

    def sweep(self, assignments: Sequence[Assignment]) -> bool:
        """Try once without each that is placed, the most expensive first; whether another sweep may gain more."""
        before, ordered = self.gained, sorted(assignments, key=self._order)
        for one in ordered:
            if not one.placed:
                self.waiting.setdefault(one.shape, []).append(one)
        for one in [one for one in reversed(ordered) if one.placed]:
            if not self.waiting or self.steps <= 0 or self.gained >= self.most or self.board.effort.hurries():
                return False
            if self._may_admit(one):
                self._try_without(one)
        self.waiting.clear()
        return self.gained > before

    def _order(self, assignment: Assignment) -> tuple[float, int, tuple[str, str]]:
        return (self.cost(assignment), assignment.pod.created, assignment.pod.key)

    def _cheapest(self) -> Iterator[list[Assignment]]:
        return islice(self.waiting.values(), _SHAPES)

    def _may_admit(self, assignment: Assignment) -> bool:
        """Whether the node would do for some waiting pod in place of this one, but for the partitions."""
        free, group = self.board.nodes[assignment.node].free, self.board.group_of[assignment.node]
        free += assignment.demand.holds
        return any(group in same[0].groups and free.fits(same[0].needs) for same in self._cheapest())

    def _try_without(self, assignment: Assignment) -> None:
        board = self.board
        node, taken = board.lift(assignment)
        admitted = self._admit(node)
        if not admitted:
            board.put(assignment, node, taken)
            return
        board.settle((node,))
        self.steps -= len(assignment.groups)
        if len(admitted) == 1 and not board.place(assignment):
            board.take_off(admitted[0])
            board.put(assignment, node, taken)
            return
        self.gained += len(admitted) - (not assignment.placed)
        for one in admitted:
            self.waiting[one.shape].remove(one)
            if not self.waiting[one.shape]:
                del self.waiting[one.shape]

    def _admit(self, node: int) -> list[Assignment]:
        """Place waiting pods on a node, cheapest first."""
        board = self.board
        admitted: list[Assignment] = []
        group = board.group_of[node]
        without: set[Wants] = set()
        for same in self._cheapest():
            if same[0].wants in without or group not in same[0].groups:
                continue
            for assignment in same:
                if not board.fits(assignment, node):
                    break
                self.steps -= 1
                if not board.place_on(assignment, node):
                    without.add(assignment.wants)
                    break
                admitted.append(assignment)
        return admitted


def prefer_older(board: Board, level: Sequence[Assignment], steps: int) -> None:
    """Pods that may move, in queue order: one that waits takes the place of a later one where no other pod pays for it.

    What is cut already stays with the pod that has it: to destroy it for an older pod would serve none more.
    """
    later: dict[Hashable, list[int]] = {}
    for number, one in enumerate(level):
        if one.placed and not any(part.ready for _, part in one.taken):
            later.setdefault((one.shape, *(device.key for device, _ in one.taken)), []).append(number)
    in_vain: set[int] = set()
    for number, one in enumerate(level):
        if one.placed or one.shape in in_vain:
            continue
        for numbers in sorted(filter(None, later.values()), key=itemgetter(-1), reverse=True):
            if numbers[-1] < number or steps <= 0:
                break
            steps -= 1
            if _replace(board, level[numbers[-1]], one):
                numbers.pop()
                break
        if not one.placed:
            in_vain.add(one.shape)


def _replace(board: Board, placed: Assignment, waiting: Assignment) -> bool:
    node, taken = board.lift(placed)
    if board.group_of[node] in waiting.groups and board.fits(waiting, node) and board.place_on(waiting, node):
        board.settle((node,))
        return True
    board.put(placed, node, taken)
    return False

"""Exchanges placed pods of one level for more: the last per cent that greedy placing leaves.

Takes the board and assignments of one level, placed and waiting; at least as many are placed afterwards. One is taken
off, and two others placed instead, or one other while the first finds another place. A move is kept only if it places
one more. Bounded by a count of trials, never by a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    exchanger.placed = [one for one in assignments if one.placed]
    exchanger.queue([one for one in assignments if not one.placed])
    while exchanger.sweep():
        pass
    return exchanger.gained


@dataclass(slots=True)
class _Exchange:
    board: Board
    cost: Callable[[Assignment], float]
    steps: int
    most: int
    placed: list[Assignment] = field(default_factory=list)
    waiting: dict[int, list[Assignment]] = field(default_factory=dict)
    """By shape; shapes and pods cheapest first."""
    gained: int = 0

    def sweep(self) -> bool:
        """Try once without each that is placed, the most expensive first; whether another sweep may gain more."""
        before = self.gained
        for assignment in sorted(self.placed, key=self._order, reverse=True) if self._goes_on() else ():
            if not self._goes_on():
                return False
            if self._may_admit(assignment):
                self._try_without(assignment)
        return self.gained > before

    def _goes_on(self) -> bool:
        return bool(self.waiting) and self.steps > 0 and self.gained < self.most

    def _order(self, assignment: Assignment) -> tuple[float, int, tuple[str, str]]:
        return (self.cost(assignment), assignment.pod.created, assignment.pod.key)

    def queue(self, assignments: Sequence[Assignment]) -> None:
        self.waiting = {}
        for assignment in sorted(assignments, key=self._order):
            self.waiting.setdefault(assignment.shape, []).append(assignment)

    def _may_admit(self, assignment: Assignment) -> bool:
        """Whether CPU and memory would do for some waiting pod in place of this one."""
        free, group = self.board.nodes[assignment.node].free, self.board.group_of[assignment.node]
        cpu = free.cpu_milli + assignment.needs.cpu_milli
        memory = free.memory_bytes + assignment.needs.memory_bytes
        return any(
            same[0].needs.cpu_milli <= cpu and same[0].needs.memory_bytes <= memory and group in same[0].groups
            for same in list(self.waiting.values())[:_SHAPES]
        )

    def _try_without(self, assignment: Assignment) -> None:
        board = self.board
        node, taken = board.lift(assignment)
        admitted = self._admit(node)
        if not admitted:
            board.put(assignment, node, taken)
            return
        board.settle((node,))
        if len(admitted) >= 2 or board.place(assignment):
            self._book(admitted, assignment)
            return
        for other in admitted:
            board.take_off(other)
        board.put(assignment, node, taken)

    def _admit(self, node: int) -> list[Assignment]:
        """Place waiting pods on a node, cheapest first."""
        board = self.board
        admitted: list[Assignment] = []
        group = board.group_of[node]
        without: set[Wants] = set()
        for same in list(self.waiting.values())[:_SHAPES]:
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

    def _book(self, admitted: Sequence[Assignment], lifted: Assignment) -> None:
        placed = set(map(id, admitted))
        waiting = [one for same in self.waiting.values() for one in same if id(one) not in placed]
        if not lifted.placed:
            waiting.append(lifted)
            self.placed = [one for one in self.placed if one is not lifted]
        self.placed.extend(admitted)
        self.gained += len(admitted) - (not lifted.placed)
        self.queue(waiting)

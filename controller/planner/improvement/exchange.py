"""Exchange placed pods of one level for more: the last per cent that greedy placing leaves.

Takes the board and assignments of one level, placed and waiting; at least as many are placed afterwards. One is taken
off, and two others placed instead, or one other while the first finds another place. A move is kept only if it places
one more. Bounded by a count of trials, never by a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controller.model.demand import Wants
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board

_SHAPES = 64
"""How many kinds of waiting asks are tried on one node, cheapest first."""


def exchange(board: Board, asks: Sequence[Ask], cost: Callable[[Ask], float], steps: int, most: int) -> int:
    """No more than `most` of those that wait can find a place. Returns how many more are placed."""
    exchanger = _Exchange(board, asks, cost, steps, most)
    while exchanger.sweep():
        pass
    return exchanger.gained


class _Exchange:
    def __init__(self, board: Board, asks: Sequence[Ask], cost: Callable[[Ask], float], steps: int, most: int) -> None:
        self._board = board
        self._cost = cost
        self._steps = steps
        self._most = most
        self._placed = [ask for ask in asks if ask.node >= 0]
        self._waiting: dict[int, list[Ask]] = {}
        self._queue([ask for ask in asks if ask.node < 0])
        self.gained = 0

    def sweep(self) -> bool:
        """Try once without each that is placed, the dearest first; whether another sweep may gain more."""
        before = self.gained
        for ask in sorted(self._placed, key=self._order, reverse=True) if self._goes_on() else ():
            if not self._goes_on():
                return False
            if self._may_admit(ask):
                self._try_without(ask)
        return self.gained > before

    def _goes_on(self) -> bool:
        return bool(self._waiting) and self._steps > 0 and self.gained < self._most

    def _order(self, ask: Ask) -> tuple[float, int, tuple[str, str]]:
        return (self._cost(ask), ask.demand.pod.created, ask.demand.pod.key)

    def _queue(self, asks: Sequence[Ask]) -> None:
        """Waiting asks by shape; shapes and asks cheapest first."""
        self._waiting = {}
        for ask in sorted(asks, key=self._order):
            self._waiting.setdefault(ask.shape, []).append(ask)

    def _may_admit(self, ask: Ask) -> bool:
        """Whether CPU and memory would do for some waiting ask in place of this one."""
        room, group = self._board.rooms[ask.node], self._board.group_of[ask.node]
        cpu, memory = room.cpu + ask.cpu, room.memory + ask.memory
        return any(
            same[0].cpu <= cpu and same[0].memory <= memory and group in same[0].groups
            for same in list(self._waiting.values())[:_SHAPES]
        )

    def _try_without(self, ask: Ask) -> None:
        board = self._board
        node, taken = board.lift(ask)
        admitted = self._admit(node)
        if not admitted:
            board.put_back(ask, node, taken)
            return
        board.settle((node,))
        if len(admitted) >= 2 or board.place(ask):
            self._book(admitted, ask)
            return
        for other in admitted:
            board.take_off(other)
        board.put_back(ask, node, taken)

    def _admit(self, node: int) -> list[Ask]:
        """Put waiting asks on a node, cheapest first."""
        board = self._board
        admitted: list[Ask] = []
        group = board.group_of[node]
        without: set[Wants] = set()
        for same in list(self._waiting.values())[:_SHAPES]:
            if same[0].demand.wants in without or group not in same[0].groups:
                continue
            for ask in same:
                if not board.fits(ask, node):
                    break
                self._steps -= 1
                if not board.place_on(ask, node):
                    without.add(ask.demand.wants)
                    break
                admitted.append(ask)
        return admitted

    def _book(self, admitted: Sequence[Ask], lifted: Ask) -> None:
        gone = set(map(id, admitted))
        waiting = [ask for same in self._waiting.values() for ask in same if id(ask) not in gone]
        if lifted.node < 0:
            waiting.append(lifted)
            self._placed = [ask for ask in self._placed if ask is not lifted]
        self._placed.extend(admitted)
        self.gained += len(admitted) - (lifted.node < 0)
        self._queue(waiting)

"""Exchange placed asks of one level for more: the last per cent that greedy placing leaves.

In go the board, the placed asks that may be moved and those that wait; at least as many stand on the board after.
Each move is kept only if it places one more: one out and two in; one or several moved elsewhere and one in; two
with equal partitions change nodes, so that CPU or memory comes together where it is needed. Bounded by a count of
trials, never by a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from controller.model.demand import Wants
from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.clearing import Budget, clear_for

_SHAPES = 64
"""How many kinds of waiting asks are tried on one node, cheapest first."""


class Improver:
    def __init__(self, board: Board, cost: Callable[[Ask], float], steps: int) -> None:
        self._board = board
        self._cost = cost
        self._budget = Budget(steps)
        self._movable: list[Ask] = []
        self._waiting: dict[int, list[Ask]] = {}

    def improve(self, movable: Sequence[Ask], waiting: Sequence[Ask], most: int) -> None:
        """`movable` stand on the board, `waiting` do not; more than `most` can never stand there."""
        self._movable = list(movable)
        self._queue(waiting)
        while self._waiting and self._budget.steps > 0 and len(self._movable) < most:
            before = len(self._movable)
            self._fill()
            self._swap()
            self._gather()
            self._clear()
            if len(self._movable) == before:
                return

    def _order(self, ask: Ask) -> tuple[float, int, tuple[str, str]]:
        return (self._cost(ask), ask.demand.pod.created, ask.demand.pod.key)

    def _queue(self, asks: Sequence[Ask]) -> None:
        """Waiting asks by shape; shapes and asks cheapest first."""
        self._waiting = {}
        for ask in sorted(asks, key=self._order):
            self._waiting.setdefault(ask.shape, []).append(ask)

    def _admitted(self, asks: Sequence[Ask], back: Ask | None = None) -> None:
        """Book what has found a place, and what has lost it."""
        gone = set(map(id, asks))
        waiting = [ask for same in self._waiting.values() for ask in same if id(ask) not in gone]
        if back is not None:
            waiting.append(back)
            self._movable = [ask for ask in self._movable if ask is not back]
        self._movable.extend(asks)
        self._queue(waiting)

    # ----------------------------------------------------------------------------------------------- moves

    def _fill(self) -> None:
        placed = []
        for same in self._waiting.values():
            for ask in same:
                if not self._budget.spend() or not self._board.place(ask):
                    break
                placed.append(ask)
        if placed:
            self._admitted(placed)

    def _swap(self) -> None:
        """One out: two in instead, or one in and the other elsewhere. The dearest are tried first."""
        for ask in sorted(self._movable, key=self._order, reverse=True):
            if self._budget.steps <= 0 or not self._waiting:
                return
            if self._may_admit(ask):
                self._try_without(ask)

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
        if len(admitted) >= 2:
            self._admitted(admitted, back=ask)
        elif admitted and board.place(ask):
            self._admitted(admitted)
        else:
            for other in admitted:
                board.take_off(other)
            board.put_back(ask, node, taken)

    def _admit(self, node: int) -> list[Ask]:
        """Put waiting asks on a node, cheapest first; some of them may stand on the board already."""
        board = self._board
        admitted: list[Ask] = []
        group = board.group_of[node]
        without: set[Wants] = set()
        for same in list(self._waiting.values())[:_SHAPES]:
            if same[0].demand.wants in without or group not in same[0].groups:
                continue
            for ask in same:
                if ask.node >= 0:
                    continue
                if not board.fits(ask, node):
                    break
                self._budget.spend()
                if not board.place_on(ask, node):
                    without.add(ask.demand.wants)
                    break
                admitted.append(ask)
        return admitted

    def _gather(self) -> None:
        """Bring CPU and memory together for a waiting ask on a node whose GPUs have room for it."""
        at, alike = self._standing(), self._alike()
        for same in list(self._waiting.values())[:_SHAPES]:
            if self._gather_for(same[0], at, alike):
                self._admitted([same[0]])
                at, alike = self._standing(), self._alike()

    def _gather_for(self, ask: Ask, at: Mapping[int, Sequence[Ask]], alike: Mapping[Wants, Sequence[Ask]]) -> bool:
        board = self._board
        for node in [node for group in ask.groups for node in board.groups[group].nodes if node in at]:
            lacking = ask.cpu - board.rooms[node].cpu
            if not self._budget.spend():
                return False
            if board.has_partitions(ask, node):
                for here in at[node]:
                    if here.cpu > lacking and self._make_room(ask, here, alike[here.demand.wants], here.cpu - lacking):
                        return True
        return False

    def _make_room(self, ask: Ask, here: Ask, others: Sequence[Ask], most_cpu: int) -> bool:
        """Exchange one ask for another with equal partitions and at most this CPU, then place the waiting one."""
        for other in reversed(others[: bisect_right(others, most_cpu, key=lambda one: one.cpu)]):
            if not self._budget.spend():
                return False
            if other.node == here.node or self._board.rooms[other.node].cpu < here.cpu - other.cpu:
                continue
            node = here.node
            if self._exchange(here, other):
                if self._board.place_on(ask, node):
                    return True
                self._exchange(here, other)
        return False

    def _clear(self) -> None:
        """Several moved elsewhere, one in."""
        at = self._standing()
        for same in list(self._waiting.values())[:_SHAPES]:
            ask = same[0]
            nodes = [node for group in ask.groups for node in self._board.groups[group].nodes if node in at]
            if any(
                self._budget.spend() and clear_for(self._board, ask, node, at[node], self._budget) for node in nodes
            ):
                self._admitted([ask])
                at = self._standing()
            if self._budget.steps <= 0:
                return

    def _standing(self) -> dict[int, list[Ask]]:
        """Movable asks per node, by rising CPU."""
        at: dict[int, list[Ask]] = {}
        for one in sorted(self._movable, key=lambda one: one.cpu):
            at.setdefault(one.node, []).append(one)
        return at

    def _alike(self) -> dict[Wants, list[Ask]]:
        """Movable asks with equal partitions, by rising CPU: any two of them can change places."""
        alike: dict[Wants, list[Ask]] = {}
        for one in sorted(self._movable, key=lambda one: one.cpu):
            alike.setdefault(one.demand.wants, []).append(one)
        return alike

    def _exchange(self, one: Ask, other: Ask) -> bool:
        """Two asks with equal partitions change places, if everything else fits."""
        board = self._board
        if board.group_of[one.node] not in other.groups or board.group_of[other.node] not in one.groups:
            return False
        one_node, one_taken = board.lift(one)
        other_node, other_taken = board.lift(other)
        fits = board.fits(one, other_node) and board.fits(other, one_node)
        if fits:
            one_node, one_taken, other_node, other_taken = other_node, other_taken, one_node, one_taken
        board.put_back(one, one_node, one_taken)
        board.put_back(other, other_node, other_taken)
        if fits:
            board.settle((one_node, other_node))
        return fits

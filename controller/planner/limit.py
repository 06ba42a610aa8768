"""How many asks can find a place at most: an upper bound that is sought more closely where somebody asks for it.

In go the board before anything new is placed, and the asks that count; out comes what is still possible as the board
fills. What is proved once holds for the whole pass, whatever stands where.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.bound import upper_bound
from controller.planner.shadow_prices import Proof, tightened
from controller.planner.sides import sides_of


class Limit:
    def __init__(self, board: Board, asks: Sequence[Ask]) -> None:
        self._board = board
        self._asks = asks
        self.most = upper_bound(board, asks)
        """So many of the asks find a place, or fewer."""

    @property
    def left(self) -> int:
        """How many more, beside those that stand now."""
        return self.most - self._standing()

    def tighten(self) -> Proof | None:
        """Some milliseconds' work where somebody was left out; None where all stand that can."""
        standing = self._standing()
        if standing >= self.most:
            return None
        proof = tightened(sides_of(self._board), self._asks, bound=self.most, placed=standing)
        self.most = proof.bound
        return proof if standing < self.most else None

    def _standing(self) -> int:
        return sum(ask.node >= 0 for ask in self._asks)

"""How many asks can find a place at most: an upper bound that is sought more closely where somebody asks for it.

In go the board before anything new is placed, and the asks that count; out comes what is still possible as the board
fills. What is proved once holds for the whole pass, whatever stands where; of a lower level, as long as those of higher
ones stand that stood when it was made.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.bound import upper_bound
from controller.planner.shadow_prices import Proof, tightened
from controller.planner.sides import sides_of


class Limit:
    def __init__(self, board: Board, asks: Sequence[Ask], served: Sequence[Ask] = ()) -> None:
        """`served` stand already and go on doing so: they count, and leave less for others."""
        self._board = board
        self._asks = [*served, *asks]
        self._served = frozenset(map(id, served))
        self.most = len(self._asks) if served else upper_bound(board, asks)
        """So many of the asks find a place, or fewer."""
        if served:
            self.tighten()

    @property
    def left(self) -> int:
        """How many more, beside those that stand now."""
        return self.most - self._standing()

    def tighten(self) -> Proof | None:
        """Some milliseconds' work where somebody was left out; None where all stand that can."""
        standing = self._standing()
        if standing >= self.most:
            return None
        sides = sides_of(self._board)
        proof = tightened(sides, self._asks, bound=self.most, placed=standing, served=self._served)
        self.most = proof.bound
        return proof if standing < self.most else None

    def _standing(self) -> int:
        return sum(ask.node >= 0 for ask in self._asks)

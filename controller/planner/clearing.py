"""Make room for one waiting ask by moving several others away.

In go the board, the ask, a node and the asks that stand there and may be moved; True means that the ask stands there
now and everybody else stands somewhere. GPUs are cleared one after the other, those with the fewest to move first, and
nobody is moved in the end unless all find another place.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.planner.asks import Ask, Taken
from controller.planner.board import Board
from controller.planner.devices import Device

_MOST_MOVED = 8
"""Beyond this many, somebody is nearly sure to find no other place."""


class Budget:
    """How many trials are left. A count, so that a result never depends on the machine."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def spend(self, steps: int = 1) -> bool:
        """False once it is used up."""
        self.steps -= steps
        return self.steps >= 0


def clear_for(board: Board, ask: Ask, node: int, there: Sequence[Ask], budget: Budget) -> bool:
    before: list[tuple[Ask, int, Taken]] = []
    for device in _candidates(board, ask, node, there):
        standing = [one for one in there if any(at is device for at, _ in one.taken)]
        before += [(one, *board.take_off(one)) for one in standing]
        if len(before) > _MOST_MOVED or not budget.spend(len(before)):
            break
        if board.place_on(ask, node):
            moved = [one for one, _, _ in before]
            if _all_placed(board, moved):
                return True
            board.take_off(ask)
            break
    for one, home, taken in reversed(before):
        board.put_back(one, home, taken)
    return False


def _candidates(board: Board, ask: Ask, node: int, there: Sequence[Ask]) -> list[Device]:
    """GPUs that could hold the hardest partition if they were cleared, the easiest to clear first."""
    resource = min((name for name, _ in ask.demand.wants), key=board.rank.__getitem__)
    found = []
    for device in board.devices[node]:
        if device.gpu >= 0 and resource in device.pool.serves and device.pool.fit(device.base, resource) is not None:
            standing = sum(any(at is device for at, _ in one.taken) for one in there)
            # What was promised, or belongs to a higher level, stays: then the GPU cannot be cleared.
            if 0 < standing == len(device.parts):
                found.append((standing, device.gpu, device))
    return [device for _, _, device in sorted(found, key=lambda each: each[:2])]


def _all_placed(board: Board, asks: Sequence[Ask]) -> bool:
    """Place all, the hardest first, or nobody."""
    hardest_first = sorted(asks, key=lambda one: (min(board.rank[name] for name, _ in one.demand.wants), -one.cpu))
    for position, one in enumerate(hardest_first):
        if not board.place(one):
            for other in hardest_first[:position]:
                board.take_off(other)
            return False
    return True

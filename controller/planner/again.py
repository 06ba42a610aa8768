"""Place the asks of one level again, whoever was left out first: what greedy placing owes a small cluster.

In go the board with the asks that may be moved and a way to improve on it; at least as many stand on the board
after. Each round takes all off, places those that were left out before anybody else (the cheapest of them, no more
than could find room), then who stood before, hardest first, then the rest; the best round counts. In a large
cluster a pod or two are no per cent, and a round takes as long as the pass: nothing is done there. Bounded by a
count of rounds, never by a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from controller.planner.asks import Ask, Taken
from controller.planner.board import Board

FEW = 64
"""Up to so many devices count as a small cluster."""
_ROUNDS = 3


def is_small(board: Board) -> bool:
    return sum(map(len, board.devices)) <= FEW


def place_again(
    board: Board,
    asks: Sequence[Ask],
    most: int,
    *,
    cheapest_first: Callable[[Sequence[Ask]], list[Ask]],
    hardness: Callable[[Ask], tuple[int, int, int, int]],
    improve: Callable[[], None],
) -> None:
    """More than `most` can never stand on the board. `asks` are those that may be moved, waiting ones included."""
    best = present = _standing(asks)
    blame: Counter[int] = Counter()
    for _ in range(_ROUNDS):
        waiting = cheapest_first([ask for ask in asks if ask.node < 0])
        if len(best) >= most or not waiting:
            break
        blame.update(id(ask) for ask in waiting[: 2 * (most - len(best))])
        stood = {id(ask) for ask, _, _ in present}
        meant = [ask for ask in asks if id(ask) in stood or blame[id(ask)]]
        board.clear(asks)
        for ask in sorted(meant, key=lambda ask: (-blame[id(ask)], *hardness(ask))):
            board.place(ask)
        for ask in cheapest_first([ask for ask in asks if ask.node < 0]):
            board.place(ask)
        improve()
        present = _standing(asks)
        if len(present) > len(best):
            best = present
    if present is not best:
        board.clear(asks)
        for ask, node, taken in best:
            board.put_back(ask, node, taken)


def _standing(asks: Sequence[Ask]) -> list[tuple[Ask, int, Taken]]:
    return [(ask, ask.node, list(ask.taken)) for ask in asks if ask.node >= 0]

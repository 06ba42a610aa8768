"""Deal pods to partitions that are there or under way, without cutting anything.

In go the board and asks of one priority level; those that find a place stand on it after. Pods that were promised a
node come first: a nomination, or the plan of an earlier pass, speaks for them. Pods that the scheduler has not tried
yet follow in queue order, since it will bind them next; they get what exists and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.devices import Reach


def keep_promises(board: Board, asks: Sequence[Ask], promises: Mapping[str, int]) -> None:
    """Put each ask where it was planned or nominated before, if what is ready or under way still fits it there."""
    for ask in asks:
        node = promises.get(ask.demand.pod.uid, -1)
        if node >= 0 and board.group_of[node] in ask.groups:
            board.place_on(ask, node, reach=Reach.UNDER_WAY)


def expect_binding(board: Board, asks: Sequence[Ask]) -> None:
    """Pods that were not tried yet, in queue order."""
    for ask in asks:
        if not ask.demand.pod.unschedulable:
            board.place(ask, reach=Reach.EXISTING)


def deal_ready(board: Board, asks: Sequence[Ask]) -> list[Ask]:
    """Give asks, in this order, what is ready or under way; returns those that found nothing."""
    return [ask for ask in asks if not board.place(ask, reach=Reach.UNDER_WAY)]

"""Deal pending pods to partitions that exist, as kube-scheduler will do by itself.

In go the board with stocks of existing supply and all asks, tried by the scheduler or not, in queue order; asks that
find a place stand on the board after. Within one priority, pods that were promised a node come first: a nomination, or
the plan of an earlier pass, speaks for them. Nothing is cut here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from controller.planner.board import Ask, Board


def deal(board: Board, asks: Sequence[Ask], promises: Mapping[str, int]) -> None:
    """`asks` are sorted by priority, highest first; `promises` maps pod uids to node numbers."""
    for _, level in groupby(asks, key=lambda ask: ask.demand.pod.priority):
        members = list(level)
        keep_promises(board, members, promises)
        for ask in members:
            if ask.node < 0:
                board.place(ask, stock_only=True)


def keep_promises(board: Board, asks: Sequence[Ask], promises: Mapping[str, int]) -> None:
    """Put each ask where it was planned or nominated before, if what is ready or under way still fits it there."""
    for ask in asks:
        node = promises.get(ask.demand.pod.uid, -1)
        if ask.node < 0 <= node and board.group_of[node] in ask.groups:
            board.place_on(ask, node, stock_only=True)

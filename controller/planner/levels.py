"""Place the asks of one priority level on the board, without improving what came out.

In go the board and the asks of one level in queue order; asks that find a place stand on the board after: divide the
rest among groups, choose whom to serve in each, place them hardest first, then fill what is left with anybody, cheapest
first. Asks of higher levels stand already and are never taken off for a lower one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from controller.planner.board import Ask, Board
from controller.planner.choose import choose
from controller.planner.pools import MigPool
from controller.planner.prices import Scale, measure
from controller.planner.split import split


def place_level(board: Board, asks: Sequence[Ask]) -> None:
    resources = frozenset(resource for ask in asks for resource, _ in ask.demand.wants)
    for group in range(len(board.groups)):
        demand(board, group, resources)
    scales = [measure(board, group, resources) for group in range(len(board.groups))]
    assigned, rest = split(asks, scales)
    chosen: list[list[Ask]] = []
    for group, members in enumerate(assigned):
        served, unserved = choose(board, group, members, scales[group])
        chosen.append(served)
        rest.extend(unserved)
    for group, members in enumerate(chosen):
        rest.extend(_place_chosen(board, group, members))
    _backfill(board, rest, scales)


def demand(board: Board, group: int, resources: Iterable[str]) -> None:
    """Say what is still to be placed in a group."""
    named = frozenset(resources)
    for pool in board.groups[group].pools:
        if isinstance(pool, MigPool):
            pool.demand(named)


def _place_chosen(board: Board, group: int, asks: Sequence[Ask]) -> list[Ask]:
    """Hardest partitions first, several before one, much CPU before little; returns those that found no node."""
    left = Counter(resource for ask in asks for resource, count in ask.demand.wants for _ in range(count))
    rank = {resource: position for position, resource in enumerate(board.sizes)}

    def hardest_first(ask: Ask) -> tuple[int, int, int, int]:
        wants = ask.demand.wants
        partitions = sum(count for _, count in wants)
        return (min(rank[resource] for resource, _ in wants), -partitions, -ask.cpu, -ask.memory)

    demand(board, group, left)
    failed = []
    for ask in sorted(asks, key=hardest_first):
        if not board.place(ask, (group,)):
            failed.append(ask)
        done = False
        for resource, count in ask.demand.wants:
            left[resource] -= count
            if not left[resource]:
                del left[resource]
                done = True
        if done:
            demand(board, group, left)
    return failed


def _backfill(board: Board, asks: Iterable[Ask], scales: Sequence[Scale]) -> None:
    for group in range(len(board.groups)):
        demand(board, group, ())
    for ask in cheapest_first(asks, scales):
        board.place(ask)


def cheapest_first(asks: Iterable[Ask], scales: Sequence[Scale]) -> list[Ask]:
    return sorted(asks, key=lambda ask: (cost(ask, scales), ask.demand.pod.created, ask.demand.pod.key))


def cost(ask: Ask, scales: Sequence[Scale]) -> float:
    """The largest share of a whole group that an ask needs, in the group where it is least."""
    return min((max(scales[group].shares(ask)) for group in ask.groups), default=0.0)

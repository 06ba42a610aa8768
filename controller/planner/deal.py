"""Deal pods to partitions that are there or under way, without cutting anything.

In go the board and asks of one priority level; those that find a place stand on it after. Pods that were promised a
node come first: a nomination, or the plan of an earlier pass, speaks for them. Pods that the scheduler has not tried
yet follow in queue order, since it will bind them next; they get what exists and no more. The others are dealt what is
idle as long as that costs no pod its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from controller.planner.asks import Ask, Taken
from controller.planner.board import Board
from controller.planner.devices import Device, Pool, Reach
from controller.planner.pools import MigPool
from controller.planner.singly import Singly
from controller.planner.tally import Tally
from partitioning.placements import Placement


def keep_promises(board: Board, asks: Sequence[Ask], promises: Mapping[str, int], singly: Singly) -> None:
    """Put each ask where it was planned or nominated before, if what is ready or under way still fits it there."""
    for ask in asks:
        if ask.node >= 0:
            continue
        node = promises.get(ask.demand.pod.uid, -1)
        if node >= 0 and board.group_of[node] in ask.groups:
            if ask in singly:
                singly.place_on(ask, node, Reach.UNDER_WAY)
            else:
                board.place_on(ask, node, reach=Reach.UNDER_WAY)


def expect_binding(board: Board, asks: Sequence[Ask], singly: Singly) -> None:
    """Pods that were not tried yet, in queue order."""
    for ask in asks:
        if ask.demand.tried:
            continue
        if ask in singly:
            singly.place([ask], Reach.EXISTING)
        else:
            board.place(ask, reach=Reach.EXISTING)


def deal_ready(board: Board, asks: Sequence[Ask]) -> list[Ask]:
    """Give asks, in this order, what is ready or under way; returns those that found nothing."""
    return [ask for ask in asks if not board.place(ask, reach=Reach.UNDER_WAY)]


def use_ready(board: Board, group: int, asks: Sequence[Ask]) -> list[Ask]:
    """Give chosen asks what needs no cut, as far as the others still fit beside it; returns those to be cut for."""
    left = [ask for ask in asks if not board.place(ask, (group,), reach=Reach.UNDER_WAY)]
    served = [ask for ask in asks if ask.node >= 0 and any(device.gpu >= 0 for device, _ in ask.taken)]
    if not left or not served:
        return left
    most_harmful = sorted(served, key=_harm(), reverse=True)
    off: list[tuple[Ask, int, Taken]] = []

    def take_off(count: int) -> None:
        while len(off) > count:
            board.put_back(*off.pop())
        off.extend((ask, *board.lift(ask)) for ask in most_harmful[len(off) : count])

    def fits_without(count: int) -> bool:
        take_off(count)
        return Tally.of(board, group).packs([*left, *most_harmful[:count]])

    if fits_without(0):
        return left
    take_off(bisect_left(range(len(served)), True, key=fits_without))
    board.settle({node for _, node, _ in off})
    return [ask for ask in asks if ask.node < 0]


def _harm() -> Callable[[Ask], int]:
    """Sort key: how many compute slices its idle instances spoil for others, beyond those that they hold."""
    known: dict[tuple[Pool, int, int, str], int] = {}

    def harm(device: Device, what: Placement) -> int:
        pool = device.pool
        assert isinstance(pool, MigPool)
        spec = pool.model.profile(what.instance.profile)
        spoiled = pool.potential(device.base) - pool.potential(device.base | what.taken)
        return spoiled - (spec.compute_slices if spec is not None else 0)

    def key(ask: Ask) -> int:
        total = 0
        for device, part in ask.taken:
            if isinstance(part.what, Placement):
                shape = (device.pool, device.base, part.what.taken, part.what.instance.profile)
                if shape not in known:
                    known[shape] = harm(device, part.what)
                total += known[shape]
        return total

    return key

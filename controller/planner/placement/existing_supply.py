"""Give pods partitions that are there or under way, without re-cutting any GPU.

Takes the board and assignments. Pods with a reservation come first: a nomination, or the plan of an earlier
pass, reserved partitions for them. Pods that the scheduler has not tried yet follow in queue order, since it will bind
them next; they get what exists and no more. The others get what is idle as long as that costs no pod its place; where
it would take a dozen idle partitions to place one pod more, these are spared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from controller.planner.board.assignment import Ask, Taken
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Pool, Reach
from controller.planner.board.pools import MigPool
from controller.planner.placement.constrained import Singly
from controller.planner.placement.packing_check import Tally
from partitioning.placements import Placement

_PRICE = 12
"""As many idle partitions may be given up for one that is requested."""


def keep_reservations(board: Board, asks: Sequence[Ask], reservations: Mapping[str, int], singly: Singly) -> None:
    """Put each ask where it was planned or nominated before, if what is ready or under way still fits it there."""
    for ask in asks:
        if ask.node >= 0:
            continue
        node = reservations.get(ask.demand.pod.uid, -1)
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


def use_ready(
    board: Board, group: int, asks: Sequence[Ask], others: Callable[[Sequence[Ask]], list[Ask] | None]
) -> list[Ask]:
    """Give chosen asks what needs no cut, as far as the rest still fits beside it; returns those to be cut for.

    Where that would take too many idle partitions back for too few asks, `others` names whom to serve instead of those
    that found nothing ready; None: nobody.
    """
    left = [ask for ask in asks if not board.place(ask, (group,), reach=Reach.UNDER_WAY)]
    served = [ask for ask in asks if ask.node >= 0 and any(device.gpu >= 0 for device, _ in ask.taken)]
    if not left or not served or Tally.of(board, group).packs(left):
        return left
    most_harmful = sorted(served, key=_harm(), reverse=True)
    off: list[tuple[Ask, int, Taken]] = []

    def fits_without(count: int) -> bool:
        while len(off) > count:
            board.put_back(*off.pop())
        off.extend((ask, *board.lift(ask)) for ask in most_harmful[len(off) : count])
        return Tally.of(board, group).packs([*left, *most_harmful[:count]])

    instead = others(left)
    needed = 1 + bisect_left(range(1, len(served)), True, key=fits_without)
    if instead is not None and needed > _PRICE * (len(left) - len(instead)):
        fits_without(0)
        board.settle({node for _, node, _ in off})
        return instead
    fits_without(needed)
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

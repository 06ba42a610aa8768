"""Gives pods partitions that are there or under way, without re-cutting any GPU.

Takes the board and assignments. Pods with a reservation come first: a nomination, or the plan of an earlier pass,
reserved partitions for them. Pods that the scheduler has not tried yet follow in queue order, since it will bind them
next; they get what exists and no more. The others get what is idle as long as that costs no pod its place; where it
would take a dozen idle partitions to place one pod more, these are spared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from controller.planner.board.assignment import Assignment, Taken
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Pool, Reach
from controller.planner.board.pools import MigPool
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.packing_check import PackingCheck
from partitioning.placements import Placement

_PRICE = 12
"""As many idle partitions may be given up for one that is requested."""


def keep_reservations(
    board: Board, assignments: Sequence[Assignment], reservations: Mapping[str, int], constrained: ConstrainedPlacement
) -> None:
    """Place each pod where it was planned or nominated before, if it still fits with what is ready or under way."""
    for one in assignments:
        node = -1 if one.placed else reservations.get(one.pod.uid, -1)
        if node >= 0 and board.group_of[node] in one.groups:
            constrained.place_on(one, node, Reach.UNDER_WAY)


def place_untried(board: Board, assignments: Sequence[Assignment], constrained: ConstrainedPlacement) -> None:
    """Pods that were not tried yet, in queue order."""
    for one in assignments:
        if one.tried:
            continue
        if one in constrained:
            constrained.place([one], Reach.EXISTING)
        else:
            board.place(one, reach=Reach.EXISTING)


def place_on_existing(board: Board, assignments: Sequence[Assignment]) -> list[Assignment]:
    """Give pods, in this order, what is ready or under way; returns those that found nothing."""
    return [one for one in assignments if not board.place(one, reach=Reach.UNDER_WAY)]


def use_ready(
    board: Board,
    group: int,
    assignments: Sequence[Assignment],
    others: Callable[[Sequence[Assignment]], list[Assignment] | None],
) -> list[Assignment]:
    """Give admitted pods what needs no cut, as long as the rest still fits then; returns those to be cut for.

    Where too many idle partitions would have to be taken back for too few pods, `others` names which pods to serve
    instead of those that found nothing ready; None: no pod.
    """
    left = [one for one in assignments if not board.place(one, (group,), reach=Reach.UNDER_WAY)]
    served = [one for one in assignments if one.placed and any(device.gpu >= 0 for device, _ in one.taken)]
    if not left or not served or PackingCheck.of(board, group).packs(left):
        return left
    most_harmful = sorted(served, key=_harm(), reverse=True)
    off: list[tuple[Assignment, int, Taken]] = []

    def fits_without(count: int) -> bool:
        while len(off) > count:
            board.put_back(*off.pop())
        off.extend((one, *board.lift(one)) for one in most_harmful[len(off) : count])
        return PackingCheck.of(board, group).packs([*left, *most_harmful[:count]])

    instead = others(left)
    needed = 1 + bisect_left(range(1, len(served)), True, key=fits_without)
    if instead is not None and needed > _PRICE * (len(left) - len(instead)):
        fits_without(0)
        board.settle({node for _, node, _ in off})
        return instead
    fits_without(needed)
    board.settle({node for _, node, _ in off})
    return [one for one in assignments if not one.placed]


def _harm() -> Callable[[Assignment], int]:
    """Sort key: how many compute slices its idle instances spoil for others, beyond those that they hold."""
    known: dict[tuple[Pool, int, int, str], int] = {}

    def harm(device: Device, what: Placement) -> int:
        pool = device.pool
        assert isinstance(pool, MigPool)
        spec = pool.model.profile(what.instance.profile)
        spoiled = pool.potential(device.base) - pool.potential(device.base | what.taken)
        return spoiled - (spec.compute_slices if spec is not None else 0)

    def key(assignment: Assignment) -> int:
        total = 0
        for device, part in assignment.taken:
            if isinstance(part.what, Placement):
                shape = (device.pool, device.base, part.what.taken, part.what.instance.profile)
                if shape not in known:
                    known[shape] = harm(device, part.what)
                total += known[shape]
        return total

    return key

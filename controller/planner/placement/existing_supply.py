"""Gives pods partitions that are there or under way, without re-cutting any GPU.

Takes the board and assignments. Pods with a reservation come first: a nomination, or the plan of an earlier pass,
reserved partitions for them. Pods that the scheduler has not tried yet follow in queue order, since it will bind them
next; they get what exists and no more. The others get what is idle as long as that costs no pod its place; up to two
pods wait where a dozen idle partitions would go for each of them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from controller.model.demand import total_wants
from controller.planner.board.assignment import Assignment, Taken
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.board.pools import MigPool
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.packing_check import PackingCheck
from partitioning.placements import Placement

_PRICE = 24
"""As many idle partitions may be taken back for one that is requested; about half of them are destroyed then."""


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


def use_ready(
    board: Board, group: int, assignments: Sequence[Assignment], *, lowest: int = 0, spared: int = 0
) -> list[Assignment]:
    """Give admitted pods what needs no cut, as long as the rest still fits then; returns those to be cut for.

    Where many idle partitions would have to be taken back for few pods, up to `spared` pods of rank `lowest`, the first
    of them, are left out.
    """
    left = [one for one in assignments if not board.place(one, (group,), reach=Reach.UNDER_WAY)]
    served = [one for one in assignments if one.placed and any(device.gpu >= 0 for device, _ in one.taken)]
    wants = total_wants([one.wants for one in left])
    if not left or not served or PackingCheck.of(board, group).packs(wants):
        return left
    most_harmful = sorted(served, key=_harm, reverse=True)
    off: list[tuple[Assignment, int, Taken]] = []

    def fits_without(count: int, waiting: Sequence[Assignment]) -> bool:
        while len(off) > count:
            board.put(*off.pop())
        off.extend((one, *board.lift(one)) for one in most_harmful[len(off) : count])
        back = total_wants([one.wants for one in most_harmful[:count]])
        return PackingCheck.of(board, group).packs(wants + back - total_wants([one.wants for one in waiting]))

    def taken_back(waiting: Sequence[Assignment]) -> int:
        return bisect_left(range(len(served)), True, key=lambda count: fits_without(count, waiting))

    waiting = [one for one in left if one.rank == lowest and not one.pod.gang][:spared]
    needed, fewer = taken_back(()), taken_back(waiting) if waiting else 0
    if waiting and needed - fewer > _PRICE * len(waiting):
        fits_without(fewer, waiting)
    else:
        waiting = []
        fits_without(needed, ())
    board.settle({node for _, node, _ in off})
    return [one for one in assignments if not one.placed and one not in waiting]


def _harm(assignment: Assignment) -> int:
    """How many compute slices its idle instances spoil for others, beyond those that they hold."""
    total = 0
    for device, part in assignment.taken:
        pool, what = device.pool, part.what
        if isinstance(pool, MigPool) and isinstance(what, Placement):
            spec = pool.model.profile(what.instance.profile)
            total += pool.potential(device.base) - pool.potential(device.base | what.taken)
            total -= spec.compute_slices if spec is not None else 0
    return total

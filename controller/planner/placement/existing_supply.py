"""Gives pods partitions that are there or under way, without re-cutting any GPU.

Takes the board and assignments. Pods with a reservation come first: a nomination, or the plan of an earlier pass,
reserved partitions for them. Pods that the scheduler has not tried yet follow in queue order, since it will bind them
next; they get what exists and no more. The others get what is idle as long as that costs no pod its place: of idle
partitions, those go first that spoil most for others.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from controller.model.demand import total_wants
from controller.planner.board.assignment import Assignment, Taken
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.board.pools import MigPool
from controller.planner.placement.packing_check import PackingCheck
from partitioning.placements import Placement

Lifted = tuple[Assignment, int, Taken]
"""A pod, the node on which it was, and what it took there."""


def keep_reservations(board: Board, assignments: Sequence[Assignment], reservations: Mapping[str, int]) -> None:
    """Place each pod where it was planned or nominated before, if it still fits with what is ready or under way."""
    for one in assignments:
        node = -1 if one.placed else reservations.get(one.pod.uid, -1)
        if node >= 0 and board.group_of[node] in one.groups:
            board.place_on(one, node, reach=Reach.UNDER_WAY)


def use_ready(board: Board, group: int, assignments: Sequence[Assignment]) -> list[Assignment]:
    """Give admitted pods what needs no cut, as long as the rest still fits then; returns those to be cut for."""
    left = [one for one in assignments if not board.place(one, (group,), reach=Reach.UNDER_WAY)]
    idle = [one for one in assignments if one.placed and any(device.gpu >= 0 for device, _ in one.taken)]
    if not left or not idle or PackingCheck.of(board, group).packs(total_wants([one.wants for one in left])):
        return left
    lifted = [(one, *board.lift(one)) for one in idle]
    packing = PackingCheck.of(board, group)
    wants = total_wants([one.wants for one in (*left, *idle)])
    for peers in _least_harmful_first(lifted):
        wants -= _give(board, peers, packing, wants)
    board.settle({node for _, node, _ in lifted})
    return [one for one in assignments if not one.placed]


def _give(board: Board, peers: Sequence[Lifted], packing: PackingCheck, wants: Counter[str]) -> Counter[str]:
    """Put back as many of these as the others allow; `wants` are those of all. Returns what they have then."""
    wants_of_each, given = peers[0][0].wants, 0

    def fits_with(count: int) -> bool:
        nonlocal given
        for one, node, taken in peers[min(given, count) : max(given, count)]:
            packing.count(taken, -1)
            if count > given:
                board.put(one, node, taken)
            else:
                board.lift(one)
            packing.count(taken, 1)
        given = count
        return packing.packs(wants - total_wants([wants_of_each] * count))

    if not fits_with(len(peers)):
        fits_with(bisect_left(range(1, len(peers)), True, key=lambda count: not fits_with(count)))
    return total_wants([wants_of_each] * given)


def _least_harmful_first(lifted: Iterable[Lifted]) -> list[list[Lifted]]:
    """In lists of those that take alike partitions and do equal harm; of several partitions only the names count."""
    lists: dict[tuple[int, Hashable], list[Lifted]] = {}
    for one, node, taken in lifted:
        kind = (_harm(taken), taken[0][1] if len(taken) == 1 else one.wants)
        lists.setdefault(kind, []).append((one, node, taken))
    return [lists[kind] for kind in sorted(lists, key=lambda kind: kind[0])]


def _harm(taken: Taken) -> int:
    """How many compute slices idle instances spoil for others, beyond those that they hold."""
    total = 0
    for device, part in taken:
        pool, what = device.pool, part.what
        if isinstance(pool, MigPool) and isinstance(what, Placement):
            spec = pool.model.profile(what.instance.profile)
            total += pool.potential(device.base) - pool.potential(device.base | what.taken)
            total -= spec.compute_slices if spec is not None else 0
    return total

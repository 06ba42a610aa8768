"""Places the pods of one priority level on the board, or of several that are ranked.

Takes the board and assignments in queue order; those that find a place are on the board afterwards. They are divided
among node groups; in each, pods are admitted on counts, whether constrained or not. Constrained ones have their places
first, then the others get what is ready as long as the rest still fits then, and are placed hardest first. What is left
is filled, cheapest first. Never takes off a pod that another level has placed.
"""

from collections.abc import Callable, Sequence

from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.placement.admission import admit
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.existing_supply import use_ready
from controller.planner.placement.gangs import Gangs
from controller.planner.placement.making_room import make_room
from controller.planner.placement.shares import measure
from controller.planner.placement.split import split

_REPEATED = 1_000
"""Groups of up to so many GPUs are placed again where a pod is left out; one pod of a larger group is no per cent."""

Cost = Callable[[Assignment], float]


def place_once(
    board: Board,
    assignments: Sequence[Assignment],
    late: Callable[[], bool],
    place_constrained: Callable[[Sequence[Assignment]], None],
) -> Cost:
    """Returns what one of them costs, compared with the others.

    Of those that are admitted, pods that may go to any node of their groups take what constrained ones leave.
    """
    resources = frozenset(resource for one in assignments for resource, _ in one.wants)
    board.demand(resources)
    scales = [measure(board, group, resources) for group in range(len(board.groups))]

    costs: dict[int, float] = {}
    kinds = [(scale.cpu, scale.memory, *scale.gpu.items()) for scale in scales]  # thousands of groups are alike

    def cost(one: Assignment) -> float:
        """The largest share of a whole group that it needs, in the group where that is least."""
        if one.shape not in costs:
            unlike = {kinds[group]: scales[group] for group in one.groups}.values()
            costs[one.shape] = min((max(scale.shares(one.demand)) for scale in unlike), default=0.0)
        return costs[one.shape]

    assigned = split(assignments, scales, cost, late)
    admitted = [admit(board, group, members, scales[group]) for group, members in enumerate(assigned)]
    make_room(board, admitted, cost)
    members = [one for found in admitted for one in found.members]
    place_constrained(sorted((one for one in members if one.constrained), key=board.hardness))
    for group, found in enumerate(admitted):
        _place_in_group(board, group, [one for one in found.members if not one.constrained])
    rest = [one for one in assignments if not one.placed and not one.constrained]
    _backfill(board, sorted(rest, key=lambda one: (one.rank, cost(one), one.pod.created, one.pod.key)))
    return cost


def _place_in_group(board: Board, group: int, members: Sequence[Assignment]) -> None:
    hardest_first = sorted(members, key=board.hardness)
    _place_new(board, group, use_ready(board, group, hardest_first))
    gpus = sum(len(pool.devices) for pool in board.groups[group].pools)
    if gpus <= _REPEATED and not all(one.placed for one in hardest_first):
        _place_again(board, group, hardest_first)


def settle_level(
    board: Board, assignments: Sequence[Assignment], gangs: Gangs, constrained: ConstrainedPlacement
) -> None:
    """Complete gangs or take them off, and give to others what that leaves."""
    gangs.settle(board, assignments)
    left = [one for one in assignments if not (one.placed or one.pod.gang)]
    for one in sorted(left, key=lambda one: (one.needs.cpu_milli, one.pod.created, one.pod.key)):
        if not one.constrained:
            board.place(one)
    constrained.place(one for one in left if one.constrained)


def _place_again(board: Board, group: int, assignments: Sequence[Assignment]) -> None:
    """Place all again, and before any gets something idle those left out, and with several partitions.

    Kept if it serves more.
    """
    first = {id(one): one for one in assignments if not one.placed or one.demand.single is None}
    before = [(one, one.node, one.taken) for one in assignments if one.placed]
    board.clear(assignments)
    board.demand({resource for one in assignments for resource, _ in one.wants}, group)
    for assignment in first.values():
        board.place(assignment, (group,))
    _place_new(board, group, use_ready(board, group, [one for one in assignments if id(one) not in first]))
    if sum(one.placed for one in assignments) <= len(before):
        board.restore(assignments, before)


def _place_new(board: Board, group: int, assignments: Sequence[Assignment]) -> None:
    """Place in this order."""
    last = {resource: number for number, one in enumerate(assignments) for resource, _ in one.wants}
    board.demand(last, group)
    for number, assignment in enumerate(assignments):
        board.place(assignment, (group,))
        for resource in [resource for resource, _ in assignment.wants if last[resource] == number]:
            del last[resource]
            board.demand(last, group)


def _backfill(board: Board, assignments: Sequence[Assignment]) -> None:
    """Give them what is ready or under way, then what fits."""
    board.demand(())
    for reach in (Reach.UNDER_WAY, Reach.NEW):
        for assignment in assignments:
            if not assignment.placed:
                board.place(assignment, reach=reach)

"""Leaves out the pods that no node can take in this pass, whatever else is placed: they cost no other pod a place.

Takes the board before anything is placed, and takes their node groups from such assignments: where no node has the
partitions and all else at once, or where filters refuse it for what stays as it is. A gang that lacks one of these is
left out whole. A pod that has waited long keeps its groups while a GPU is, or could be, drained for it. What can only
become less during a pass need not be tried again; in a level, a group or a budget of its own, such a pod would make the
search take another way. Never leaves out a pod that could be placed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.gangs import Gangs
from controller.simulator.terms import Pair

_ROUNDS = 4
"""What is left out may be what others need: gangs, and pods near which others must be."""


def leave_out_hopeless(
    board: Board,
    assignments: Sequence[Assignment],
    gangs: Gangs,
    constrained: ConstrainedPlacement,
    may_serve: Callable[[Assignment], bool],
) -> bool:
    """Returns whether there was any. `may_serve`: whether a drain serves the pod, or could."""
    rooms: dict[tuple[Wants, int], bool] = {}
    found = False
    for _ in range(_ROUNDS):
        before = sum(bool(one.groups) for one in assignments)
        _leave_out(board, assignments, constrained, may_serve, rooms)
        gangs.leave_out(assignments)
        if before == sum(bool(one.groups) for one in assignments):
            break
        found = True
    return found


def _leave_out(
    board: Board,
    assignments: Sequence[Assignment],
    constrained: ConstrainedPlacement,
    may_serve: Callable[[Assignment], bool],
    rooms: dict[tuple[Wants, int], bool],
) -> None:
    labels = Counter[Pair](pair for one in assignments if one.groups for pair in one.pod.labels)
    hopes: dict[Hashable, bool] = {}
    for one in assignments:
        if not one.groups:
            continue
        alike = (constrained.alike(one), one.tried, bool(one.pod.gang))
        if alike not in hopes:
            nodes = _with_room(board, one, rooms)
            hopes[alike] = any(constrained.may_accept(one, node, labels) for node in nodes)
        if not hopes[alike] and not may_serve(one):
            one.groups = ()


def _with_room(board: Board, one: Assignment, rooms: dict[tuple[Wants, int], bool]) -> Iterable[int]:
    # Thousands of pods may request sizes of which no GPU has room for one: no node is asked for these.
    groups = [board.groups[group] for group in one.groups]
    able = [each for each in groups if all(any(pool.gives(name) for pool in each.pools) for name, _ in one.wants)]
    for node in (node for group in able for node in group.nodes):
        if board.fits(one, node):
            if (one.wants, node) not in rooms:
                rooms[one.wants, node] = board.has_partitions(one, node)
            if rooms[one.wants, node]:
                yield node

"""Divides the pods of one level among the node groups that they may use, so that no group is overloaded needlessly.

Takes assignments and capacities, returns assignments per group; each is in one list at most. Level by level, those that
were left out before come first, then pods with the fewest groups, of these the cheapest, each to the group that has
least of its capacity given away. Never decides whether a pod fits.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from operator import add

from controller.planner.board.assignment import Assignment
from controller.planner.placement.shares import GroupCapacity

_MOST = 500_000
"""Nodes that are looked at for pods of all shapes; after them, whether a group serves a pod shows when it is placed."""


def split(
    assignments: Sequence[Assignment],
    capacities: Sequence[GroupCapacity],
    cost: Callable[[Assignment], float],
    late: Callable[[], bool],
) -> list[list[Assignment]]:
    """Assignments per group; one that no group serves is in none.

    `late`: whether no time is left. Whether a group serves a pod shows when it is placed then.
    """
    able_of, looked = dict[int, tuple[int, ...]](), 0
    for one in assignments:
        if one.shape not in able_of:
            looked += sum(len(capacities[group].nodes) for group in one.groups)
            blind = looked > _MOST or late()
            able_of[one.shape] = tuple(g for g in one.groups if blind or capacities[g].serves(one.demand))
    if len(capacities) == 1:
        return [[one for one in assignments if able_of[one.shape]]]
    assigned: list[list[Assignment]] = [[] for _ in capacities]
    loads = [[0.0, 0.0, 0.0] for _ in capacities]
    """Of GPUs, CPU and memory of each group, what is given away."""
    heaps: dict[tuple[int, ...], list[tuple[float, int]]] = {}
    """By the groups of a pod: these, the least loaded first. An entry is right when it shows the present load."""
    for one in sorted(
        assignments, key=lambda one: (one.rank, -one.left_out, len(able_of[one.shape]), cost(one), one.pod.created)
    ):
        able = able_of[one.shape]
        if not able:
            continue
        if able not in heaps:
            heaps[able] = [(max(loads[group]), group) for group in able]
            heapify(heaps[able])
        heap = heaps[able]
        while heap[0][0] != (now := max(loads[group := heap[0][1]])):
            heapreplace(heap, (now, group))
        assigned[group].append(one)
        loads[group] = list(map(add, loads[group], capacities[group].shares(one.demand)))
        heapreplace(heap, (max(loads[group]), group))
    return assigned

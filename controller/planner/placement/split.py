"""Divides the pods of one level among the node groups that they may use, so that no group is overloaded needlessly.

Takes assignments and capacities, returns assignments per group; each is in one list at most. Level by level, those that
were left out before come first, then pods with the fewest groups, of these the cheapest, each to the group where what
is scarce rises least: pods that need little CPU or memory go where there is little. Never decides whether a pod fits.
"""

from collections.abc import Callable, Hashable, Sequence
from heapq import heapreplace
from operator import add

from controller.planner.board.assignment import Assignment
from controller.planner.placement.shares import POWER, GroupCapacity, ResourceShares

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
    heaps: dict[Hashable, list[tuple[float, int]]] = {}
    """Of pods that are nearly alike: the groups, first the one that rises least. No entry is above the present rise."""
    known: dict[tuple[Hashable, int], ResourceShares] = {}
    """What the first of them costs, by group."""

    def rise(what: Hashable, group: int) -> tuple[float, int]:
        if (what, group) not in known:
            known[what, group] = capacities[group].shares(one.demand)
        return _rise(loads[group], known[what, group]), group

    for one in sorted(
        assignments, key=lambda one: (one.rank, -one.left_out, len(able_of[one.shape]), cost(one), one.pod.created)
    ):
        able, needs = able_of[one.shape], one.needs
        if not able:
            continue
        what = (able, one.wants, needs.cpu_milli.bit_length(), needs.memory_bytes.bit_length())
        if what not in heaps:
            heaps[what] = sorted(rise(what, group) for group in able)
        heap = heaps[what]
        while heap[0] != (now := rise(what, heap[0][1])):
            heapreplace(heap, now)
        group = heap[0][1]
        assigned[group].append(one)
        loads[group] = list(map(add, loads[group], capacities[group].shares(one.demand)))
    return assigned


def _rise(loads: Sequence[float], shares: ResourceShares) -> float:
    """How much fuller the group would be; what it has little left of counts most."""
    (gpu, cpu, memory), (more_gpu, more_cpu, more_memory) = loads, shares
    after = (gpu + more_gpu) ** POWER + (cpu + more_cpu) ** POWER + (memory + more_memory) ** POWER
    return after - gpu**POWER - cpu**POWER - memory**POWER

"""Divides the pods of one level among the node groups that they may use, so that no group is overloaded needlessly.

Takes assignments and scales, returns assignments per group; each is in one list at most. Shares of each kind of pod are
moved from loaded to idle groups in a fixed number of rounds, then the pods are distributed by largest remainder. Never
decides whether a pod fits.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heapreplace

from controller.model.demand import total_wants
from controller.planner.board.assignment import Assignment
from controller.planner.placement.shares import Scale

_ROUNDS = 30
_MOST = 500_000
"""Nodes that are looked at for pods of all shapes; after them, whether a group serves a pod shows when it is placed."""
_SHIFTS = 5_000_000
"""Shares of groups that are moved at most, in all rounds."""
_LEAST = 1e-12
_HALF = 0.5
"""A group's first pod is due after half of the time in which one is due to it: rounding to the nearest."""


def split(
    assignments: Sequence[Assignment], scales: Sequence[Scale], late: Callable[[], bool]
) -> tuple[list[list[Assignment]], list[Assignment]]:
    """Assignments per group, and those that no group can serve.

    `late`: whether no time is left. Whether a group serves a pod shows when it is placed, and shares stay as they are.
    """
    kinds, able_of, looked = dict[tuple[int, ...], list[Assignment]](), dict[int, tuple[int, ...]](), 0
    for one in assignments:
        if one.shape not in able_of:
            looked += sum(len(scales[group].nodes) for group in one.groups)
            blind = looked > _MOST or late()
            able_of[one.shape] = tuple(g for g in one.groups if blind or scales[g].serves(one.demand))
        kinds.setdefault(able_of[one.shape], []).append(one)
    unserved = kinds.pop((), [])
    assigned: list[list[Assignment]] = [[] for _ in scales]
    for able, weights in _balanced(kinds, scales, late).items():
        _distribute(kinds[able], able, weights, scales, assigned)
    return assigned, unserved


def _balanced(
    kinds: Mapping[tuple[int, ...], Sequence[Assignment]], scales: Sequence[Scale], late: Callable[[], bool]
) -> dict[tuple[int, ...], dict[int, float]]:
    """Per kind of pod the share that each group gets."""
    weights = {able: dict.fromkeys(able, 1 / len(able)) for able in kinds}
    burdens = {able: _burdens(members, {group: scales[group] for group in able}) for able, members in kinds.items()}
    fixed = [sum(burdens.get((group,), {}).values()) for group in range(len(scales))]
    divided = [able for able in kinds if len(able) > 1]
    for _ in range(0 if late() else min(_ROUNDS, _SHIFTS // (1 + sum(map(len, divided))))):
        loads = list(fixed)
        for able in divided:
            share, burden = weights[able], burdens[able]
            for group in able:
                loads[group] += share[group] * burden[group]
        for able in divided:
            moved = {group: share / (loads[group] + _LEAST) + _LEAST for group, share in weights[able].items()}
            total = sum(moved.values())
            weights[able] = {group: value / total for group, value in moved.items()}
    return weights


def _burdens(members: Sequence[Assignment], scales: Mapping[int, Scale]) -> dict[int, float]:
    """How much of each group all these pods would need, by the scarcest dimension."""
    wants = tuple(total_wants([one.wants for one in members]).items())
    cpu, memory = sum(one.needs.cpu_milli for one in members), sum(one.needs.memory_bytes for one in members)
    return {group: max(scale.shares_of(wants, cpu, memory)) for group, scale in scales.items()}


def _distribute(
    members: Sequence[Assignment],
    able: tuple[int, ...],
    weights: Mapping[int, float],
    scales: Sequence[Scale],
    assigned: list[list[Assignment]],
) -> None:
    """Interleave, so that every group gets the same mix of cheap and expensive pods."""
    if len(able) == 1:
        assigned[able[0]].extend(members)
        return
    first = scales[able[0]]
    due = [(_HALF / weights[group], group) for group in able]
    heapify(due)
    for assignment in sorted(members, key=lambda one: (first.shares(one.demand), one.pod.created)):
        at, group = due[0]
        heapreplace(due, (at + 1 / weights[group], group))
        assigned[group].append(assignment)

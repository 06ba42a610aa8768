"""Divides the pods of one level among the node groups that they may use, so that no group is overloaded needlessly.

Takes assignments and scales, returns assignments per group; each is in one list at most. Shares of each kind of pod are
moved from loaded to idle groups in a fixed number of rounds, then the pods are distributed by largest remainder. Never
decides whether a pod fits.
"""

from collections.abc import Mapping, Sequence

from controller.planner.board.assignment import Assignment
from controller.planner.placement.shares import Scale

_ROUNDS = 30
_LEAST = 1e-12


def split(
    assignments: Sequence[Assignment], scales: Sequence[Scale]
) -> tuple[list[list[Assignment]], list[Assignment]]:
    """Assignments per group, and those that no group can serve."""
    kinds: dict[tuple[int, ...], list[Assignment]] = {}
    able_of: dict[int, tuple[int, ...]] = {}
    unserved = []
    for one in assignments:
        able = able_of.get(one.shape)
        if able is None:
            able = able_of[one.shape] = tuple(group for group in one.groups if scales[group].serves(one.demand))
        if able:
            kinds.setdefault(able, []).append(one)
        else:
            unserved.append(one)
    weights = _balanced(kinds, scales)
    assigned: list[list[Assignment]] = [[] for _ in scales]
    for able, members in kinds.items():
        _distribute(members, able, weights[able], scales, assigned)
    return assigned, unserved


def _balanced(
    kinds: Mapping[tuple[int, ...], Sequence[Assignment]], scales: Sequence[Scale]
) -> dict[tuple[int, ...], dict[int, float]]:
    """Per kind of pod the share that each group gets."""
    weights = {able: dict.fromkeys(able, 1 / len(able)) for able in kinds}
    if all(len(able) == 1 for able in kinds):
        return weights
    burdens = {able: {group: _burden(members, scales[group]) for group in able} for able, members in kinds.items()}
    for _ in range(_ROUNDS):
        loads = [0.0] * len(scales)
        for able, share in weights.items():
            for group in able:
                loads[group] += share[group] * burdens[able][group]
        for able, share in weights.items():
            moved = {group: share[group] / (loads[group] + _LEAST) + _LEAST for group in able}
            total = sum(moved.values())
            weights[able] = {group: value / total for group, value in moved.items()}
    return weights


def _burden(members: Sequence[Assignment], scale: Scale) -> float:
    """How much of the group all these pods would need, by the scarcest dimension."""
    gpu = cpu = memory = 0.0
    for one in members:
        shares = scale.shares(one.demand)
        gpu, cpu, memory = gpu + shares[0], cpu + shares[1], memory + shares[2]
    return max(gpu, cpu, memory)


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
    due = dict.fromkeys(able, 0.0)
    first = scales[able[0]]
    for assignment in sorted(members, key=lambda one: (first.shares(one.demand), one.pod.created)):
        for group in able:
            due[group] += weights[group]
        chosen = max(able, key=lambda group: (due[group], -group))
        due[chosen] -= 1.0
        assigned[chosen].append(assignment)

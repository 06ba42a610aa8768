"""Divide the asks of one level among the node groups that they may use, so that no group is overloaded needlessly.

In go asks and scales, out come asks per group; each ask is in one list at most. Shares of each kind of ask are moved
from loaded to idle groups in a fixed number of rounds, then the asks are dealt out by largest remainder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.planner.board.assignment import Ask
from controller.planner.placement.shares import Scale

_ROUNDS = 30
_LEAST = 1e-12


def split(asks: Sequence[Ask], scales: Sequence[Scale]) -> tuple[list[list[Ask]], list[Ask]]:
    """Asks per group, and those that no group can serve."""
    kinds: dict[tuple[int, ...], list[Ask]] = {}
    homeless = []
    for ask in asks:
        able = tuple(group for group in ask.groups if scales[group].serves(ask))
        if able:
            kinds.setdefault(able, []).append(ask)
        else:
            homeless.append(ask)
    weights = _balanced(kinds, scales)
    assigned: list[list[Ask]] = [[] for _ in scales]
    for able, members in kinds.items():
        _deal(members, able, weights[able], scales, assigned)
    return assigned, homeless


def _balanced(
    kinds: Mapping[tuple[int, ...], Sequence[Ask]], scales: Sequence[Scale]
) -> dict[tuple[int, ...], dict[int, float]]:
    """Per kind of ask the share that each group gets."""
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


def _burden(members: Sequence[Ask], scale: Scale) -> float:
    """How much of the group all these asks would need, by the scarcest dimension."""
    gpu = cpu = memory = 0.0
    for ask in members:
        shares = scale.shares(ask)
        gpu, cpu, memory = gpu + shares[0], cpu + shares[1], memory + shares[2]
    return max(gpu, cpu, memory)


def _deal(
    members: Sequence[Ask],
    able: tuple[int, ...],
    weights: Mapping[int, float],
    scales: Sequence[Scale],
    assigned: list[list[Ask]],
) -> None:
    """Interleave, so that every group gets the same mix of cheap and dear asks."""
    if len(able) == 1:
        assigned[able[0]].extend(members)
        return
    due = dict.fromkeys(able, 0.0)
    first = scales[able[0]]
    for ask in sorted(members, key=lambda ask: (first.shares(ask), ask.demand.pod.created)):
        for group in able:
            due[group] += weights[group]
        chosen = max(able, key=lambda group: (due[group], -group))
        due[chosen] -= 1.0
        assigned[chosen].append(ask)

"""Chooses which pods of one node group to serve when not all of them fit: as many as possible, level by level.

Takes a group's assignments, returns the admitted ones and the others. They are sorted by what they cost, at prices of
GPU, CPU and memory that follow from what is requested of each, and where not all fit at a few others; as many as can be
packed are taken in this order: where one cannot, no later one with such partitions, since others may come from GPUs of
another model.
Packing is tested on counts of device states, not on devices, so a test costs the same for 10 GPUs and 10,000; whether
each node has the CPU in the right place shows when the admitted are placed. Never changes the board.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from controller.model.capacity import Capacity
from controller.model.demand import total_wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.effort import LOOKS
from controller.planner.placement.gangs import GangKey, key_of
from controller.planner.placement.packing_check import PackingCheck
from controller.planner.placement.shares import POWER, GroupCapacity, ResourceShares

_SCARCE = 0.9**POWER
"""CPU and memory of which less is requested do not decide what fits."""
_OTHER_PRICES = ((1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1))
"""Of GPU, CPU and memory, tried where the first ones leave a pod out: where two are scarce, the first favour one."""

Priced = tuple[Assignment, ResourceShares]


@dataclass(slots=True, kw_only=True, eq=False)
class Admitted:
    """What one group serves, what it turned away, and what else it could hold."""

    members: list[Assignment]
    others: list[Assignment]
    packing: PackingCheck
    """With the members packed."""
    full: set[Hashable] = field(default_factory=set)
    """For what there is no room with them."""

    def change(self, coming: Sequence[Assignment], leaving: Sequence[Assignment] = ()) -> None:
        """Some join the members, and others leave."""
        self.members = [*(one for one in self.members if one not in leaving), *coming]
        self.packing = self.packing.with_packed(coming, leaving)
        self.full = set() if leaving else self.full


def admit(board: Board, group: int, assignments: Sequence[Assignment], capacity: GroupCapacity) -> Admitted:
    """Rank by rank."""
    priced = _alike_in_gangs([(one, capacity.shares(one.demand)) for one in sorted(assignments, key=_tie_break)])
    packing = PackingCheck.of(board, group)
    admitted: list[Assignment] = []
    others: list[Assignment] = []
    for _, members in groupby(sorted(priced, key=_rank), key=_rank):
        chosen, rest = _most_that_fit(list(members), packing)
        packing = packing.with_packed(chosen)
        admitted += chosen
        others += rest
    return Admitted(members=admitted, others=others, packing=packing)


def _rank(priced: Priced) -> int:
    return priced[0].rank


def _most_that_fit(priced: list[Priced], packing: PackingCheck) -> tuple[list[Assignment], list[Assignment]]:
    """The cheapest first: at the price that follows from what is requested, or at another by which more fit."""
    gpu, *others = [sum(shares) ** POWER for shares in zip(*(shares for _, shares in priced), strict=True)]
    most: tuple[list[Assignment], list[Assignment]] = ([], [])
    for prices in ((gpu, *(price if price > _SCARCE else 0.0 for price in others)), *_OTHER_PRICES):
        found = _all_that_fit([one for one, _ in sorted(priced, key=partial(_cost, prices))], packing)
        most = max(most, found, key=lambda each: (len(each[0]), len(each[1])))
        if not found[1] or len(priced) == 1 or packing.board.effort.hurries():
            break
    return most


def _all_that_fit(ordered: list[Assignment], packing: PackingCheck) -> tuple[list[Assignment], list[Assignment]]:
    """In this order: where a pod does not fit, none that requests such partitions and comes later."""
    chosen, rest = list[Assignment](), list[Assignment]()
    while ordered:
        fitting = _longest_fitting(ordered, packing)
        coming, left = ordered[:fitting], ordered[fitting:]
        chosen += coming
        if not left or left[0].pod.gang or packing.board.effort.looks > 2 * LOOKS:
            return chosen, rest + left
        packing = packing.with_packed(coming)
        lacking, ordered = {name for name, _ in left[0].wants}, []
        for one in left:
            (ordered if lacking.isdisjoint([name for name, _ in one.wants]) else rest).append(one)
    return chosen, rest


def _alike_in_gangs(priced: list[Priced]) -> list[Priced]:
    """Pods of a gang cost the same, so that they are served together or left out together."""
    members: dict[GangKey | None, list[ResourceShares]] = {}
    for one, shares in priced:
        if one.pod.gang:
            members.setdefault(key_of(one.pod), []).append(shares)
    if not members:
        return priced
    means = {
        gang: (gpu / len(shares), cpu / len(shares), memory / len(shares))
        for gang, shares in members.items()
        for gpu, cpu, memory in (map(sum, zip(*shares, strict=True)),)
    }
    return [(one, means.get(key_of(one.pod), shares)) for one, shares in priced]


def _tie_break(assignment: Assignment) -> tuple[str, int, int, tuple[str, str]]:
    """Of pods that cost the same, those that have no other group come first."""
    pod = assignment.pod
    return (pod.gang, len(assignment.groups), pod.created, pod.key)


def _cost(prices: Sequence[float], priced: Priced) -> float:
    gpu, cpu, memory = priced[1]
    return gpu * prices[0] + cpu * prices[1] + memory * prices[2]


def _longest_fitting(ordered: Sequence[Assignment], packing: PackingCheck) -> int:
    """The length of the longest prefix that fits: CPU and memory by sums, partitions by trial packing."""
    most = _longest_by_sums(ordered, packing.free)
    wants = [one.wants for one in ordered]
    if packing.packs(total_wants(wants[:most])):
        return most
    fits, fails, fitting = 0, most, Counter[str]()
    while fails - fits > 1:
        middle = (fits + fails) // 2
        more = fitting + total_wants(wants[fits:middle])
        if packing.packs(more):
            fits, fitting = middle, more
        else:
            fails = middle
    return fits


def _longest_by_sums(ordered: Sequence[Assignment], free: Capacity) -> int:
    cpu, memory = free.cpu_milli, free.memory_bytes
    for position, one in enumerate(ordered):
        needs = one.demand.needs
        cpu -= needs.cpu_milli
        memory -= needs.memory_bytes
        if cpu < 0 or memory < 0 or position >= free.pods:
            return position
    return len(ordered)

"""Places gangs whole or not at all.

Takes the assignments of one level after they were placed one by one; afterwards every gang has as many places as it
needs to start, or none. A gang that lacks pods (not created yet, gated, or not served) is left out before anything is
planned. A gang that has started needs nothing more: a member that is replaced is placed by itself. It has started while
a member holds partitions, or when one has run and ended and too few are left to start the gang as a whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.model.demand import Demand, DemandSet
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board

GangKey = tuple[str, str]
"""Namespace and name."""


def key_of(pod: PodView) -> GangKey | None:
    return (pod.namespace, pod.gang) if pod.gang else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """A pod whose gang has `present` of the `total` pods that it needs to start."""

    pod: PodView
    present: int
    total: int


@dataclass(slots=True, kw_only=True)
class Gangs:
    """How many places each gang needs, and (after `settle`) how many those had that need more."""

    needs: Mapping[GangKey, int] = field(default_factory=dict)
    found: dict[GangKey, int] = field(default_factory=dict)
    incomplete: Sequence[Incomplete] = ()
    lacking: dict[GangKey, int] = field(default_factory=dict)
    """Gangs that were left out, and how many of their pods some node could take."""

    def leave_out(self, assignments: Sequence[Assignment]) -> None:
        """Of gangs too many of whose pods no node can take, all pods."""
        for gang, members in _members(assignments).items():
            able = [one for one in members if one.groups]
            if 0 < len(able) < self.needs.get(gang, 0):
                self.lacking[gang] = len(able)
                for one in able:
                    one.groups = ()

    def settle(self, board: Board, assignments: Sequence[Assignment]) -> None:
        """Complete gangs, the smallest first, or take them off."""
        self.drop_broken(board, assignments)
        members = _members(assignments)
        broken = [
            gang for gang, each in members.items() if self.needs.get(gang) and not any(one.placed for one in each)
        ]
        for gang in sorted(broken, key=lambda gang: (self.needs[gang], gang)):
            self.found[gang] = max(self._place(board, gang, members[gang]), self.found.get(gang, 0))
            if self.found[gang] >= self.needs[gang]:
                del self.found[gang]

    def drop_broken(self, board: Board, assignments: Sequence[Assignment]) -> bool:
        """Take off gangs that have lost a place since they were settled; returns whether there was any."""
        dropped = False
        for gang, members in _members(assignments).items():
            placed = [one for one in members if one.placed]
            if 0 < len(placed) < self.needs.get(gang, 0):
                self.found[gang] = len(placed)
                dropped = True
                for assignment in placed:
                    board.take_off(assignment)
        return dropped

    def _place(self, board: Board, gang: GangKey, members: Sequence[Assignment]) -> int:
        """How many found a place; they keep it only if these are enough.

        Where its pods must stay together, in one domain after the other: the first pod alone would choose a full one.
        """
        hardest_first = sorted(members, key=board.hardness)
        domains = board.filters.domains(hardest_first[0]) if board.filters is not None else ()
        most = 0
        for within in domains or (None,):
            placed = [one for one in hardest_first if board.place(one, within=within)]
            most = max(most, len(placed))
            if most >= self.needs[gang]:
                break
            for assignment in placed:
                board.take_off(assignment)
        return most


def without_incomplete(snapshot: Snapshot) -> tuple[DemandSet, Gangs]:
    """The snapshot's demands without the pods of gangs that cannot start yet, and what the others need."""
    demands = _grouped(snapshot.demands, snapshot.context.pod_groups)
    if not any(demand.pod.gang for demand in demands.helpable):
        return demands, Gangs()
    bound = _count(pod for pod in snapshot.pods if not pod.deleting)
    running = _count(pod for pod in snapshot.pods if pod.gpu and not pod.deleting)
    pending = _count(pod for pod in snapshot.pending if not pod.deleting)
    refused = {one.uid for one in demands.refused}
    out_of_reach = _count(pod for pod in snapshot.pending if pod.uid in refused)
    sizes: dict[GangKey, int] = {}
    requesting: Counter[GangKey] = Counter()
    for demand in demands.helpable:
        if gang := key_of(demand.pod):
            sizes[gang] = max(sizes.get(gang, 0), demand.pod.gang_size)
            requesting[gang] += 1
    totals = {gang: size or bound[gang] + pending[gang] for gang, size in sizes.items()}
    present = {gang: bound[gang] + pending[gang] - out_of_reach[gang] for gang in totals}
    started = {
        gang for gang in totals if running[gang] or (gang in snapshot.finished_gangs and present[gang] < totals[gang])
    }
    helpable: list[Demand] = []
    incomplete: list[Incomplete] = []
    for demand in demands.helpable:
        gang = key_of(demand.pod)
        if gang is None or gang in started or present[gang] >= totals[gang]:
            helpable.append(demand)
        else:
            incomplete.append(Incomplete(pod=demand.pod, present=present[gang], total=totals[gang]))
    # Members that request no partition are placed by the scheduler without our help.
    needs = {
        gang: 0 if gang in started else max(0, total - (present[gang] - requesting[gang]))
        for gang, total in totals.items()
    }
    return replace(demands, helpable=tuple(helpable)), Gangs(needs=needs, incomplete=incomplete)


def _grouped(demands: DemandSet, pod_groups: Mapping[tuple[str, str, str], int]) -> DemandSet:
    """With the least numbers of PodGroup objects: a pod whose group needs none is in no gang."""
    if not pod_groups:
        return demands

    def of_group(demand: Demand) -> Demand:
        pod = demand.pod
        least = pod_groups.get((pod.gang_api, pod.namespace, pod.gang)) if pod.gang and pod.gang_api else None
        if least is None:
            return demand
        return replace(demand, pod=replace(pod, gang=pod.gang if least else "", gang_size=least))

    return replace(
        demands, helpable=tuple(map(of_group, demands.helpable)), untried=tuple(map(of_group, demands.untried))
    )


def _members(assignments: Sequence[Assignment]) -> dict[GangKey, list[Assignment]]:
    members: dict[GangKey, list[Assignment]] = {}
    for assignment in assignments:
        if gang := key_of(assignment.pod):
            members.setdefault(gang, []).append(assignment)
    return members


def _count(pods: Iterable[PodView]) -> Counter[GangKey]:
    return Counter(gang for pod in pods if (gang := key_of(pod)))

"""Gangs stand on the board whole or not at all.

Takes the asks of one level after they were placed one by one; afterwards every gang has as many places as it needs to
start, or none. A gang that lacks pods (not created yet, gated, or not served) gets this as its reason before anything
is planned. A gang that has started needs nothing more: a member that is replaced is placed alone. It has started while
a member holds partitions, or when one has run and ended and too few are left to start the gang as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.model.demand import Demand, DemandSet
from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board

GangKey = tuple[str, str]
"""Namespace and name."""


def key_of(pod: PodView) -> GangKey | None:
    return (pod.namespace, pod.gang) if pod.gang else None


@dataclass(slots=True, kw_only=True)
class Gangs:
    """What each gang needs, and (after `settle`) how many places those had that need more."""

    needs: Mapping[GangKey, int]
    found: dict[GangKey, int]

    def settle(self, board: Board, asks: Sequence[Ask]) -> None:
        """Complete gangs, the smallest first, or take them off."""
        broken = {
            gang: members
            for gang, members in _members(asks).items()
            if sum(ask.node >= 0 for ask in members) < self.needs.get(gang, 0)
        }
        for gang, members in broken.items():
            self.found[gang] = sum(ask.node >= 0 for ask in members)
            for ask in members:
                if ask.node >= 0:
                    board.take_off(ask)
        for gang in sorted(broken, key=lambda gang: (self.needs[gang], gang)):
            found = self._place(board, gang, broken[gang])
            if found >= self.needs[gang]:
                del self.found[gang]
            else:
                self.found[gang] = max(found, self.found[gang])

    def drop_broken(self, board: Board, asks: Sequence[Ask]) -> None:
        """Take off gangs that have lost a place since they were settled."""
        for gang, members in _members(asks).items():
            standing = [ask for ask in members if ask.node >= 0]
            if 0 < len(standing) < self.needs.get(gang, 0):
                self.found[gang] = len(standing)
                for ask in standing:
                    board.take_off(ask)

    def _place(self, board: Board, gang: GangKey, members: Sequence[Ask]) -> int:
        """How many found a place; they stand there only if these are enough."""
        hardest_first = sorted(
            members, key=lambda ask: (min(board.rank[name] for name, _ in ask.demand.wants), -ask.cpu)
        )
        placed = [ask for ask in hardest_first if board.place(ask)]
        if len(placed) < self.needs[gang]:
            for ask in placed:
                board.take_off(ask)
        return len(placed)

    def why_not(self, pod: PodView) -> Unplaced | None:
        """Why a pod of a broken gang got nothing; None for others."""
        gang = key_of(pod)
        if gang is None or gang not in self.found:
            return None
        return _waits(
            pod,
            f"Pod group {pod.gang} needs places for {self.needs[gang]} pods at once; only {self.found[gang]} can be "
            "provided. Wait for running pods to finish, or add a GPU node.",
        )


def without_incomplete(snapshot: Snapshot) -> tuple[DemandSet, Gangs]:
    """The snapshot's demands without the pods of gangs that cannot start yet, and what the others need."""
    demands = snapshot.demands
    if not any(demand.pod.gang for demand in demands.helpable):
        return demands, Gangs(needs={}, found={})
    bound = _count(snapshot.pods)
    running = _count(pod for pod in snapshot.pods if pod.gpu and not pod.deleting)
    pending = _count(pod for pod in snapshot.pending if not pod.deleting)
    refused = {one.uid for one in demands.refused}
    out_of_reach = _count(pod for pod in snapshot.pending if pod.uid in refused)
    sizes: dict[GangKey, int] = {}
    asking: Counter[GangKey] = Counter()
    for demand in demands.helpable:
        gang = key_of(demand.pod)
        if gang is not None:
            sizes[gang] = max(sizes.get(gang, 0), demand.pod.gang_size)
            asking[gang] += 1
    totals = {gang: size or bound[gang] + pending[gang] for gang, size in sizes.items()}
    present = {gang: bound[gang] + pending[gang] - out_of_reach[gang] for gang in totals}
    started = {
        gang for gang in totals if running[gang] or (gang in snapshot.finished_gangs and present[gang] < totals[gang])
    }
    helpable: list[Demand] = []
    lacking: list[Unplaced] = []
    for demand in demands.helpable:
        gang = key_of(demand.pod)
        if gang is None or gang in started or present[gang] >= totals[gang]:
            helpable.append(demand)
        else:
            lacking.append(_waits(demand.pod, _lacks(demand.pod.gang, present[gang], totals[gang])))
    # Members that ask for no partition are placed by the scheduler without our help.
    needs = {
        gang: 0 if gang in started else max(0, total - (present[gang] - asking[gang])) for gang, total in totals.items()
    }
    complete = replace(demands, helpable=tuple(helpable), refused=(*demands.refused, *lacking))
    return complete, Gangs(needs=needs, found={})


def _lacks(gang: str, present: int, total: int) -> str:
    return f"Pod group {gang} has {present} of the {total} pods that it needs to start. It is planned when all exist."


def _members(asks: Sequence[Ask]) -> dict[GangKey, list[Ask]]:
    members: dict[GangKey, list[Ask]] = {}
    for ask in asks:
        gang = key_of(ask.demand.pod)
        if gang is not None:
            members.setdefault(gang, []).append(ask)
    return members


def _count(pods: Iterable[PodView]) -> Counter[GangKey]:
    return Counter(gang for pod in pods for gang in (key_of(pod),) if gang is not None)


def _waits(pod: PodView, message: str) -> Unplaced:
    return Unplaced(uid=pod.uid, key=pod.key, reason=UnplacedReason.GANG_WAITS, message=message)

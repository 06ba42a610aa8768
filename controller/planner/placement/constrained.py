"""Constrained placement: places pods one by one whose place depends on other pods, or on volumes not bound yet.

Takes the board and assignments of one level; those that find a place are on it afterwards. The simulator is queried
for one node after the other, with every pod that was placed before counted in; counts of alike pods and nodes would be
wrong for such pods. Nodes without room cost no query, and of some with room the one that loses least is the first.
Pods about which something is unknown come last. Never moves a pod once it is placed here; at the
end each pod that no longer passes the filters, since others were moved, is taken off again.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice

from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PodView
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.board.several_partitions import taken_of
from controller.planner.effort import FILTERS, WORK
from controller.planner.placement.surroundings import cluster_of
from controller.simulator.affinity import NOT_ATTRACTED, selects_itself
from controller.simulator.attempts import Attempt
from controller.simulator.cluster import ClusterState
from controller.simulator.filters import fails_always
from controller.simulator.spread import SKEWED
from controller.simulator.terms import Pair, labels_of
from controller.simulator.verdicts import DoesNotFit, does_not_fit

_COMPARED = 48
"""Of so many nodes with room the pod gets the one that loses least by it, if the filters accept it there."""
NOT_EXAMINED = does_not_fit("", "not examined")
"""What stands for a filter's answer where a pass has no work left for the pod."""
_DECIDED_ELSEWHERE = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}
)
"""Filters that node groups and the board apply."""


class ConstrainedPlacement:
    """Made once per pass."""

    def __init__(
        self, snapshot: Snapshot, options: PlannerOptions, board: Board, assignments: Sequence[Assignment]
    ) -> None:
        self._board = board
        self._assignments = assignments
        self._nodes = snapshot.nodes
        self._effort = board.effort
        self._cut = False
        """The last search ended before all of its nodes were tried."""
        self.first = {uid: number for number, uid in enumerate(snapshot.unexamined)}
        """Pods that have their turn before others of their level, by uid."""
        self.unexamined, self._unknown = set[str](), set[str]()
        """Uids of pods for which no work was left, of which some may have found a place since; and see `unknown`."""
        self._synced: dict[str, int] = {}
        self._refused: dict[Hashable, tuple[Hashable, set[int]]] = {}
        self._at = -1
        """`moves` of the board that the cluster has followed."""
        cluster = cluster_of(snapshot, options, [one.pod for one in assignments])
        self._cluster = cluster or ClusterState()
        if cluster is not None:
            self._effort.begin(Counter(one.pod.namespace for one in assignments), half=True)
            for one in [one for one in sorted(assignments, key=self.turn) if not self._examined(one)]:
                self._examined(one)
        self.begin(half=True)
        board.filters = self

    def begin(self, *, half: bool = False) -> None:
        """All pods wait for their turn. `half`: what is found out first leaves as much to place them with."""
        self.unexamined.clear()
        waiting = [one.pod for one in self._assignments if one.constrained and one.groups and not one.placed]
        first = min(((self.first[pod.uid], pod.namespace) for pod in waiting if pod.uid in self.first), default=(0, ""))
        self._effort.begin(Counter(pod.namespace for pod in waiting), half=half, first=first[1])

    def _examined(self, assignment: Assignment) -> bool:
        """Find out whether its place depends on others; while it is not known, it does if the pod itself says so."""
        pod = assignment.pod
        assignment.constrained = self._cluster.constrains_itself(pod)
        if not self._effort.may(pod.namespace):
            return False
        assignment.constrained = self._depends(pod)
        self._effort.done(pod.namespace)
        return True

    def _prefiltered(self, pod: PodView) -> Attempt:
        before = self._cluster.visits
        attempt = self._cluster.prefilter(pod)
        self._effort.spend(pod, self._cluster.visits - before)
        return attempt

    def equivalence_class(self, assignment: Assignment) -> Hashable:
        """Equal for pods that fit exactly where the other fits, whatever decides that."""
        return (assignment.shape, self._cluster.kind(assignment.pod) if assignment.constrained else None)

    def may_accept(self, assignment: Assignment, node: int, labels: Mapping[Pair, int]) -> bool:
        """False: the filters refuse the node whichever pods come. `labels` are those of pods that may come."""
        refusal = self._refusal(assignment, node) if assignment.constrained else None
        if refusal is None or refusal is NOT_EXAMINED or refusal is SKEWED:
            return True
        near = [labels_of(term.selector) for term in assignment.pod.affinity]
        return refusal is NOT_ATTRACTED and all(not pairs or any(labels.get(pair) for pair in pairs) for pairs in near)

    def accepts(self, assignment: Assignment, node: int) -> bool:
        """Whether the filters accept the node, with every pod where it is now; whatever work is left.

        What is kept for other namespaces does not pay for that: a place of an earlier pass costs none its share.
        """
        self._catch_up()
        in_reach = node >= 0 and self._board.group_of[node] in assignment.groups
        accepted = in_reach and self._judged(assignment, node, self._effort.free(assignment.pod.namespace)) is None
        if accepted:
            self._effort.done(assignment.pod.namespace)
        return accepted

    def place_one(self, assignment: Assignment, reach: Reach, within: Collection[int] | None = None) -> bool:
        """Place it on some node (default: of its groups) that the filters accept."""
        self._catch_up()
        nearest_first = sorted({min(reach, Reach.UNDER_WAY), reach})
        return any(self._search(assignment, step, within) for step in nearest_first)

    def place(self, assignments: Iterable[Assignment]) -> None:
        """Place as many as possible, in this order; pods about which something is unknown last.

        Within each level those come first for which no work was left in the pass before.
        """
        failed: set[Hashable] = set()
        later, unknown = list[Assignment](), list[Assignment]()
        for one in sorted(assignments, key=self.turn) if self.first else assignments:
            if one.pod.uid not in self.first and self.unknown(one):
                unknown.append(one)
            elif not self._had_its_turn(one, failed):
                later.append(one)
        later += [one for one in unknown if not self._had_its_turn(one, failed)]
        self.unexamined.update(one.pod.uid for one in later if not self._had_its_turn(one, failed))

    def turn(self, one: Assignment) -> tuple[int, int]:
        """Sort key: within a level, those first for which the pass before had no work left."""
        return (-one.pod.priority, self.first.get(one.pod.uid, len(self.first)))

    def _had_its_turn(self, assignment: Assignment, failed: set[Hashable]) -> bool:
        """False where the search was cut short: it may go on once the pods of other namespaces have had theirs."""
        kind = self.equivalence_class(assignment)
        if kind not in failed:
            self._cut = False
            if self.place_one(assignment, Reach.NEW):
                failed.clear()  # it may attract others, or raise the least count that they may not exceed
            elif self._cut:
                return False
            else:
                failed.add(kind)
        self._effort.done(assignment.pod.namespace)
        return True

    def verify(self) -> bool:
        """Unassign pods that no longer pass the filters after all moves; returns whether there was any.

        Once more after each that leaves: others may have come for its sake.
        """
        self._catch_up()
        left = False
        while refused := [one for one in self._assignments if one.constrained and one.placed and self._fails(one)]:
            left = True
            more = not self._effort.over()
            # Each of them was refused with all others in place, and one that leaves may leave its place to another.
            for assignment in refused:
                if self._fails(assignment):
                    self._board.take_off(assignment)
                    self._catch_up()
            if not more:
                break
        return left

    def _fails(self, assignment: Assignment) -> bool:
        """Whether the filters refuse the pod where it is."""
        self._cluster.remove_pod(assignment.pod.uid)
        accepted = self._judged(assignment, assignment.node) is None
        self._cluster.add_pod(assignment.pod, self._nodes[assignment.node].name)
        return not accepted

    def refusal(self, assignment: Assignment, node: int) -> str:
        """The scheduler's message; '' where the filters accept the node."""
        refusal = self._refusal(assignment, node) if assignment.constrained else None
        return refusal.message if refusal is not None else ""

    def _depends(self, pod: PodView) -> bool:
        attempt = self._prefiltered(pod)
        self._unknown.update([pod.uid] if attempt.unknown else [])
        odd = pod.volumes or attempt.refused or attempt.unknown or fails_always(attempt.profile)
        return bool(odd) or self._cluster.coupled(pod)

    def unknown(self, assignment: Assignment) -> bool:
        """Whether something about it is unknown, as it was examined: such pods come last. To ask all costs nothing."""
        return assignment.constrained and assignment.pod.uid in self._unknown

    def domains(self, assignment: Assignment) -> list[frozenset[int]]:
        """Nodes of its groups, by the topology in which it must stay with pods like itself; none where it need not."""
        pod = assignment.pod
        key = next((term.topology_key for term in pod.affinity if selects_itself(term, pod)), "")
        found: dict[str, list[int]] = {}
        for node in (node for group in assignment.groups for node in self._board.groups[group].nodes):
            if key and (value := self._nodes[node].labels.get(key)) is not None:
                found.setdefault(value, []).append(node)
        largest_first = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
        return [frozenset(nodes) for _, nodes in largest_first]

    def _search(self, assignment: Assignment, reach: Reach, within: Collection[int] | None = None) -> bool:
        """Of some nodes with room the one that loses least by it, if the filters accept it; then the next ones."""
        refused = self._refusing(assignment) if self._effort.may(assignment.pod.namespace) else set()
        offers = self._board.rooms.offers(assignment.demand, assignment.groups, reach, refused, within)
        while some := sorted(islice(offers, _COMPARED), key=lambda offer: offer.cost):
            for offer in some:
                if not self._effort.may(assignment.pod.namespace):
                    self._cut = True
                    return False
                if self._refusal(assignment, offer.node) is None:
                    self._board.put(assignment, offer.node, taken_of(offer.found))
                    self._sync(assignment)
                    self._at = self._board.moves
                    return True
                refused.add(offer.node)
        return False

    def _refusing(self, assignment: Assignment) -> set[int]:
        """Nodes that have refused a pod like this, and would again."""
        key, holding = self._cluster.kind(assignment.pod), self._prefiltered(assignment.pod).refusals_hold
        before, nodes = self._refused.get(key, (None, set()))
        if before != holding:
            nodes = set()
            self._refused[key] = (holding, nodes)
        return nodes

    def _refusal(self, assignment: Assignment, node: int) -> DoesNotFit | None:
        return self._judged(assignment, node) if self._effort.may(assignment.pod.namespace) else NOT_EXAMINED

    def _judged(self, assignment: Assignment, node: int, most: int = WORK) -> DoesNotFit | None:
        """`most`: no more is paid for it."""
        pod, before = assignment.pod, self._cluster.visits
        found = self._cluster.why_not(pod, self._nodes[node].name, without=_DECIDED_ELSEWHERE)
        self._effort.spend(pod, min(most, FILTERS + self._cluster.visits - before))
        return found or fails_always(self._cluster.profile_of(pod))

    def _catch_up(self) -> None:
        """Show the cluster where every pod is by now. Some may have left a place since, which lets others in."""
        if self._at == self._board.moves:
            return
        self._at = self._board.moves
        self._refused.clear()
        for assignment in self._assignments:
            if assignment.node != self._synced.get(assignment.pod.uid, -1):
                self._sync(assignment)

    def _sync(self, assignment: Assignment) -> None:
        pod = assignment.pod
        self._synced[pod.uid] = assignment.node
        if assignment.placed:
            self._cluster.add_pod(pod, self._nodes[assignment.node].name)
        else:
            self._cluster.remove_pod(pod.uid)

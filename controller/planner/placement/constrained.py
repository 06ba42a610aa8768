"""Place asks one by one whose place depends on where other pods are, or on volumes.

In go the board and asks of one level; those that find a place stand on it after. Where such a pod may go is asked of
the simulator for one node after the other, with every pod that was placed before counted in; counts of alike pods and
nodes would be wrong for them. Pods about which something is unknown come last. Nobody is moved once he stands here, and
at the end whoever would not be let in any more, since others were moved, is taken off again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PodView
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.inventory.node_groups import IGNORED_TAINTS
from controller.simulator import ClusterState, Misfit, fails_always

_MOST_TRIALS = 50_000
"""How many pairs of a pod and a node are looked at in one pass."""
_DECIDED_ELSEWHERE = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}
)
"""Filters that node groups and the board stand for."""


class Singly:
    """Made once per pass."""

    def __init__(self, snapshot: Snapshot, options: PlannerOptions, board: Board, asks: Sequence[Ask]) -> None:
        self._board = board
        self._asks = asks
        self._names = [node.name for node in snapshot.nodes]
        self._trials = _MOST_TRIALS
        self._told: dict[str, int] = {}
        self._lists: dict[tuple[tuple[int, ...], Reach, tuple[str, ...]], list[int]] = {}
        self._starts: dict[Hashable, int] = {}
        self._ready: dict[str, frozenset[int]] = {}
        self._refused: dict[Hashable, tuple[Hashable, set[int]]] = {}
        self._cluster = _cluster(snapshot, options, [ask.demand.pod for ask in asks])
        self._single = frozenset(ask.demand.pod.uid for ask in asks if self._depends(ask.demand.pod))

    def __contains__(self, ask: Ask) -> bool:
        """Whether it must be placed here."""
        return ask.demand.pod.uid in self._single

    def place_on(self, ask: Ask, node: int, reach: Reach) -> bool:
        """Put one ask on this node, if everybody agrees."""
        self._catch_up()
        if node < 0 or self._board.group_of[node] not in ask.groups or not self._lets_in(ask, node):
            return False
        return self._stands(ask, node, reach)

    def place(self, asks: Iterable[Ask], reach: Reach = Reach.NEW) -> None:
        """Place as many as possible, in this order; pods about which something is unknown last."""
        self._catch_up()
        failed: set[Hashable] = set()
        for ask in sorted(asks, key=lambda ask: bool(self._unknown(ask))):
            kind = (ask.shape, _look(ask.demand.pod))
            if kind in failed:
                continue
            nearest_first = [Reach.UNDER_WAY, Reach.CHANGED, Reach.NEW] if reach is Reach.NEW else [reach]
            if any(self._search(ask, within) for within in nearest_first):
                failed.clear()  # it may attract others, or raise the least count that they may not exceed
            else:
                failed.add(kind)

    def verify(self) -> None:
        """Take off whoever stands where he would not be let in, now that everybody stands where he will."""
        self._catch_up()
        for ask in self._asks:
            if ask in self and ask.node >= 0 and self._cluster is not None:
                self._cluster.remove_pod(ask.demand.pod.uid)
                if self._lets_in(ask, ask.node):
                    self._cluster.add_pod(ask.demand.pod, self._names[ask.node])
                else:
                    self._told.pop(ask.demand.pod.uid, None)
                    self._board.take_off(ask)

    def refusals(self, ask: Ask, nodes: Iterable[int]) -> Counter[str]:
        """Why the scheduler keeps the pod off these nodes, by its words; '' where it does not."""
        if ask not in self:
            return Counter({"": 1})
        misfits = [self._refusal(ask, node) for node in nodes]
        return Counter(misfit.message if misfit is not None else "" for misfit in misfits)

    # -------------------------------------------------------------------------------------------- inside

    def _depends(self, pod: PodView) -> bool:
        if self._cluster is None:
            return False
        attempt = self._cluster.prefilter(pod)
        odd = pod.volumes or attempt.refused or attempt.unknown or fails_always(attempt.profile)
        return bool(odd) or self._cluster.coupled(pod)

    def _unknown(self, ask: Ask) -> tuple[str, ...]:
        return self._cluster.prefilter(ask.demand.pod).unknown if self._cluster is not None else ()

    def _search(self, ask: Ask, reach: Reach) -> bool:
        """Start where one like it was placed last: it goes there as well, or to one of the next."""
        nodes = self._candidates(ask, reach)
        kind = (_look(ask.demand.pod), ask.groups, reach)
        start = self._starts.get(kind, 0)
        refused = self._refusing(ask)
        for step in range(len(nodes)):
            if self._trials <= 0:
                return False
            position = (start + step) % len(nodes)
            if nodes[position] in refused:
                continue
            self._trials -= 1
            if not self._lets_in(ask, nodes[position]):
                refused.add(nodes[position])
            elif self._stands(ask, nodes[position], reach):
                self._starts[kind] = position
                return True
        return False

    def _refusing(self, ask: Ask) -> set[int]:
        """Nodes that have refused one who looks like this, and would again."""
        look, pod = _look(ask.demand.pod), ask.demand.pod
        standing = self._cluster.prefilter(pod).standing if self._cluster is not None else None
        before, nodes = self._refused.get(look, (None, set()))
        if before != standing:
            nodes = set()
            self._refused[look] = (standing, nodes)
        return nodes

    def _candidates(self, ask: Ask, reach: Reach) -> list[int]:
        """Nodes of its groups that could serve it within this reach, the fullest first: empty ones stay whole."""
        resources = tuple(name for name, _ in ask.demand.wants) if reach <= Reach.UNDER_WAY else ()
        key = (ask.groups, reach, resources)
        found = self._lists.get(key)
        if found is None:
            devices = self._board.devices
            nodes = [node for group in ask.groups for node in self._board.groups[group].nodes]
            if reach <= Reach.UNDER_WAY:
                nodes = [node for node in nodes if all(node in self._with_ready(name) for name in resources)]
            elif reach is Reach.CHANGED:
                nodes = [node for node in nodes if any(device.changed for device in devices[node])]
            load = {node: sum(len(device.parts) for device in devices[node]) for node in nodes}
            found = self._lists[key] = sorted(nodes, key=lambda node: (-load[node], node))
        return found

    def _with_ready(self, resource: str) -> frozenset[int]:
        """Nodes that have, or had before this pass, some of it without any cut."""
        if resource not in self._ready:
            self._ready[resource] = frozenset(
                device.node
                for devices in self._board.devices
                for device in devices
                if resource in device.ready or (device.gpu < 0 and resource in device.pool.serves)
            )
        return self._ready[resource]

    def _lets_in(self, ask: Ask, node: int) -> bool:
        return self._refusal(ask, node) is None

    def _refusal(self, ask: Ask, node: int) -> Misfit | None:
        if self._cluster is None:
            return None
        pod = ask.demand.pod
        misfit = self._cluster.why_not(pod, self._names[node], without=_DECIDED_ELSEWHERE)
        return misfit or fails_always(self._cluster.profile_of(pod))

    def _stands(self, ask: Ask, node: int, reach: Reach) -> bool:
        if not self._board.place_on(ask, node, reach=reach):
            return False
        if reach is Reach.NEW:
            for (groups, within, _), nodes in self._lists.items():
                if within is Reach.CHANGED and self._board.group_of[node] in groups and node not in nodes:
                    nodes.append(node)
        self._tell(ask)
        return True

    def _catch_up(self) -> None:
        """Tell the cluster where everybody stands by now. Some may have left a place since, which lets others in."""
        self._lists.clear()
        self._refused.clear()
        for ask in self._asks:
            if ask.node != self._told.get(ask.demand.pod.uid, -1):
                self._tell(ask)

    def _tell(self, ask: Ask) -> None:
        pod = ask.demand.pod
        self._told[pod.uid] = ask.node
        if self._cluster is None:
            return
        if ask.node >= 0:
            self._cluster.add_pod(pod, self._names[ask.node])
        else:
            self._cluster.remove_pod(pod.uid)


def _cluster(snapshot: Snapshot, options: PlannerOptions, pending: Sequence[PodView]) -> ClusterState | None:
    """None where nobody looks at others or has volumes, which is the common case and costs nothing then."""
    bound = (*snapshot.pods, *snapshot.other_pods)
    needed = (
        any(pod.affinity or pod.anti_affinity or pod.volumes for pod in pending)
        or any(constraint.hard for pod in pending for constraint in pod.spread)
        or any(profile.default_spread or fails_always(profile) for profile in options.profiles.values())
        or any(pod.anti_affinity for pod in bound)
    )
    if not needed:
        return None
    cluster = ClusterState(
        (*snapshot.nodes, *snapshot.other_nodes),
        bound,
        context=snapshot.context,
        profiles=options.profiles,
        ignored_taints=IGNORED_TAINTS,
    )
    for pod in snapshot.pending:
        if pod.nominated_node and not pod.nomination_ours and not pod.deleting:
            cluster.add_pod(pod, pod.nominated_node)  # its scheduler is evicting pods for it there
    return cluster


def _look(pod: PodView) -> Hashable:
    """Equal for pods that look alike to others, and at them."""
    return (pod.namespace, pod.labels, pod.affinity, pod.anti_affinity, pod.spread, pod.volumes)

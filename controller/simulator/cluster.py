"""The cluster as kube-scheduler sees it while pods are placed one after the other.

`ClusterState` holds nodes and pods, and `why_not` returns the first filter that keeps a pod off a node, by the profile
of the pod's scheduler, or None. The result follows every pod that is added or removed at once, so that pods whose
constraints count each other (topology spread, inter-pod affinity) can be placed one by one. Reads no clock and no API.
"""

from collections.abc import Collection, Hashable, Iterable

from controller.model.scheduling import DEFAULT_PROFILE, NO_CONTEXT, FilterProfile, SchedulerProfiles, SchedulingContext
from controller.model.views import NodeView, PodView
from controller.simulator.attempts import Attempt, attempt_for, filter_key, hard_constraints
from controller.simulator.changes import Changes
from controller.simulator.filters import (
    NODE_FILTERS,
    ROOM_FILTERS,
    Assumptions,
    node_refusal,
    not_narrowed_to,
    room_refusal,
    without_state,
)
from controller.simulator.population import Place, Population
from controller.simulator.verdicts import DoesNotFit, does_not_fit
from controller.simulator.volumes import VOLUME_FILTERS, volume_refusal

_KEPT = 1_000_000
"""How many numbers are remembered for all kinds of pods together; what was not asked for longest goes first."""
_REMEMBERED = 100_000
"""How many changes are kept for kinds that were not requested since."""
_BEHIND = 32
"""A kind that has missed more changes than this, and than it took to judge it, is judged from the start."""


class ClusterState:
    def __init__(
        self,
        nodes: Iterable[NodeView] = (),
        pods: Iterable[PodView] = (),
        *,
        context: SchedulingContext = NO_CONTEXT,
        profiles: SchedulerProfiles | None = None,
        ignored_taints: Collection[str] = (),
        most_visits: int | None = None,
    ) -> None:
        """`pods` are bound and not finished. Taints whose key is in `ignored_taints` are taken as gone.

        A pod for which more than `most_visits` others would have to be looked at is refused on every node.
        """
        self._context = context
        self._profiles = profiles or {}
        self._ignored_taints = frozenset(ignored_taints)
        self._population = Population(nodes)
        self._most_visits = most_visits
        self._kinds: dict[Hashable, int] = {}
        self._kind_of: dict[int, tuple[PodView, int]] = {}
        """By identity of the view: to compare the terms of two pods may take long."""
        self._attempts: dict[int, Attempt] = {}
        """By kind, the one asked for last at the end."""
        self._kept = 0
        self._changes = Changes()
        self._last_attempt: tuple[PodView, Attempt] | None = None
        for pod in pods:
            self._population.add(pod, pod.node)

    def add_pod(self, pod: PodView, node_name: str = "") -> None:
        """The pod is on this node from now on (default: its own node), and on no other."""
        self.remove_pod(pod.uid)
        resident = self._population.add(pod, node_name or pod.node)
        if resident is not None:
            self._changes.add(resident, 1)

    def remove_pod(self, uid: str) -> None:
        """The pod is on no node."""
        resident = self._population.remove(uid)
        if resident is not None:
            self._changes.add(resident, -1)

    def profile_of(self, pod: PodView) -> FilterProfile:
        """How the pod's scheduler filters."""
        return self._profiles.get(pod.scheduler_name, DEFAULT_PROFILE)

    @property
    def visits(self) -> int:
        """How many pods and terms were looked at so far."""
        return self._population.visits

    def prefilter(self, pod: PodView) -> Attempt:
        """What is true of the pod on whichever node: `refused` and `unknown`."""
        # The same pod is judged on one node after the other.
        if self._last_attempt is not None and self._last_attempt[0] is pod:
            attempt = self._last_attempt[1]
        else:
            attempt = self._attempt(pod)
            self._last_attempt = (pod, attempt)
        if attempt.seen < len(self._changes):
            self._show(attempt, len(self._changes))
        return attempt

    def _show(self, attempt: Attempt, most: int) -> bool:
        """The changes that it has missed, if they are no more than `most`."""
        missed = self._changes.since(attempt.seen, attempt.interest)
        if len(missed) > most:
            return False
        for resident, number in missed:
            attempt.count(resident, number)
        attempt.seen = len(self._changes)
        return True

    def why_not(self, pod: PodView, node_name: str, *, without: Collection[str] = ()) -> DoesNotFit | None:
        """The filter that keeps the pod off the node; None: it fits.

        `without`: plugins that are skipped, such as NodeResourcesFit where the caller counts the resources itself.
        """
        place = self._population.places.get(node_name)
        if place is None:
            return does_not_fit("NodeName", f"node {node_name} is not there")
        return self._refusal(pod, place, without)

    def constrains_itself(self, pod: PodView) -> bool:
        """It names other pods or volumes on which its place depends."""
        named = pod.affinity or pod.anti_affinity or pod.volumes
        return bool(named or hard_constraints(pod, self.profile_of(pod), self._context))

    def coupled(self, pod: PodView) -> bool:
        """Where it fits depends on where other pods are: such pods are placed one by one, never in numbers."""
        if pod.affinity or pod.anti_affinity or hard_constraints(pod, self.profile_of(pod), self._context):
            return True
        attempt = self.prefilter(pod) if self._population.repelling else None
        return attempt is not None and attempt.affinity is not None and attempt.affinity.repelled

    def _attempt(self, pod: PodView) -> Attempt:
        profile = self.profile_of(pod)
        kind = self.kind(pod)
        attempt = self._attempts.pop(kind, None)
        if attempt is not None and not self._show(attempt, max(_BEHIND, attempt.cost)):
            self._kept -= attempt.size
            attempt = None
        if attempt is None:
            if len(self._changes) >= _REMEMBERED:
                self._forget_attempts()
            attempt = attempt_for(pod, profile, self._population, self._context, self._most_visits)
            attempt.seen = len(self._changes)
            self._kept += attempt.size
            while self._kept > _KEPT and self._attempts:
                self._kept -= self._attempts.pop(next(iter(self._attempts))).size
        self._attempts[kind] = attempt
        return attempt

    def kind(self, pod: PodView) -> int:
        """A number: equal for pods that fit where the other fits, but for what they request."""
        known = self._kind_of.get(id(pod))
        if known is None:
            kind = self._kinds.setdefault(filter_key(pod, self.profile_of(pod)), len(self._kinds))
            known = self._kind_of[id(pod)] = (pod, kind)  # kept, so that its id stays its own
        return known[1]

    def _refusal(self, pod: PodView, place: Place, without: Collection[str]) -> DoesNotFit | None:
        attempt = self.prefilter(pod)
        profile = attempt.profile
        refusal = attempt.refused or not_narrowed_to(pod, place.node, profile)
        if refusal is not None:
            return refusal
        given = Assumptions(
            profile=profile, ignored_taints=self._ignored_taints, dra_resources=self._context.dra_resources
        )
        for plugin in profile.filters:
            if plugin in without:
                continue
            refusal = without_state(plugin, profile) or self._judge(plugin, pod, place, attempt, given)
            if refusal is not None:
                return refusal
        return None

    def _judge(
        self, plugin: str, pod: PodView, place: Place, attempt: Attempt, given: Assumptions
    ) -> DoesNotFit | None:
        if plugin in NODE_FILTERS:
            return node_refusal(plugin, pod, place.node, given)
        if plugin in ROOM_FILTERS:
            return room_refusal(plugin, pod, place.node, place.usage, given)
        if plugin in VOLUME_FILTERS:
            return volume_refusal(plugin, place, attempt.volumes, self._population.claim_users)
        if plugin == "PodTopologySpread" and attempt.spread is not None:
            return attempt.spread.refusal(place)
        if plugin == "InterPodAffinity" and attempt.affinity is not None:
            return attempt.affinity.refusal(place)
        return None

    def _forget_attempts(self) -> None:
        self._attempts.clear()
        self._kept = 0
        self._changes.clear()
        self._last_attempt = None

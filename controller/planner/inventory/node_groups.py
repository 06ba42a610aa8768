"""Groups nodes that the pending pods cannot tell apart, and finds the groups that each pod may use.

Takes nodes and pods, returns group numbers per node and, per pod, the groups whose nodes pass kube-scheduler's filters
on the node object, labelled as they will be once they are cut, and reach its bound volumes. Filters run once per kind
of pod and kind of node, never per pair: of a node's labels only those count that some selector names. Our own taint of
a node in change is ignored.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from controller.model.demand import Demand, kind_of
from controller.model.scheduling import (
    DEFAULT_PROFILE,
    NO_CONTEXT,
    ZONE_LABELS,
    FilterProfile,
    NodeSelectorTerm,
    SchedulerProfiles,
    SchedulingContext,
)
from controller.model.views import NodeView, PodView
from controller.simulator import (
    Misfit,
    VolumeState,
    expected_after,
    filter_node,
    named_nodes,
    settled_refusal,
    settled_volumes,
)
from crds.v1alpha1.names import TAINT_CHANGING
from partitioning.resources import MpsRequest

IGNORED_TAINTS = frozenset({TAINT_CHANGING})
"""Set by the agent while partitions are withdrawn, and removed by it: no reason not to plan a pod there."""
NO_PROFILES: SchedulerProfiles = {}
_NO_VOLUMES = VolumeState()


class NodeGroups:
    """Groups are numbered in the order of their first node. Nodes that no pod may use are in group -1."""

    def __init__(
        self,
        nodes: Sequence[NodeView],
        pods: Iterable[PodView],
        profiles: SchedulerProfiles = NO_PROFILES,
        relabelled: Collection[str] = frozenset(),
        context: SchedulingContext = NO_CONTEXT,
    ) -> None:
        """`relabelled`: names of nodes whose device plugin changes their labels when they begin to share GPUs."""
        self._profiles, self._relabelled = profiles, relabelled
        self._volumes: dict[str, VolumeState] = {}
        """Of pods, by uid, whose volumes groups take into account."""
        kinds: dict[Hashable, PodView] = {}
        for pod in pods:
            state = settled_volumes(pod, self._profile_of(pod), context) if pod.volumes else None
            if state is not None:
                self._volumes[pod.uid] = state
            kinds.setdefault(self._constraints_of(pod), pod)
        samples = list(kinds.values())
        keys, by_name = _selected_labels(samples, map(self._volumes_of, samples), profiles)
        tied, free = _tied(samples, profiles)
        numbers: dict[tuple[int, ...], int] = {}
        """Of groups, by the kinds that may use their nodes."""
        number_of_facts: dict[Hashable, int] = {}
        self.group_of: list[int] = []
        for node in nodes:
            facts = (_facts(node, keys, by_name), node.name in relabelled)
            if facts not in number_of_facts:
                able = tuple(
                    kind
                    for kind in sorted([*free, *tied.get(node.name, ())])
                    if self.why_not(samples[kind], node) is None
                )
                number_of_facts[facts] = numbers.setdefault(able, len(numbers)) if able else -1
            self.group_of.append(number_of_facts[facts])
        self.count = len(numbers)
        allowed: list[list[int]] = [[] for _ in kinds]
        for able, number in numbers.items():
            for kind in able:
                allowed[kind].append(number)
        self._allowed = [tuple(found) for found in allowed]
        self._kinds = {kind: position for position, kind in enumerate(kinds)}

    def kind_of(self, pod: PodView) -> int:
        """A number: pods of one kind may use the same nodes."""
        return self._kinds[self._constraints_of(pod)]

    def allowed(self, kind: int) -> tuple[int, ...]:
        """The groups that pods of a kind may use, in rising order."""
        return self._allowed[kind]

    def why_not(self, pod: PodView, node: NodeView) -> Misfit | None:
        """What keeps a pod off a node whatever else runs there; None: nothing, as the node will be once it is cut."""
        refusal = why_not(pod, node, self._profiles, relabels=node.name in self._relabelled)
        return refusal or settled_refusal(node, self._volumes_of(pod), self._profile_of(pod))

    def settled(self, demand: Demand) -> Demand:
        """Without the volumes that its groups take into account: they keep the pod off no other node."""
        return replace(demand, pod=replace(demand.pod, volumes=())) if demand.pod.uid in self._volumes else demand

    def _constraints_of(self, pod: PodView) -> Hashable:
        """Pods with equal constraints may use the same nodes."""
        selection = (pod.tolerations, pod.node_selector, pod.node_affinity, pod.features, self._volumes_of(pod))
        return (selection, pod.scheduler_name, _shares(pod.gpu))

    def _volumes_of(self, pod: PodView) -> VolumeState:
        return self._volumes.get(pod.uid, _NO_VOLUMES)

    def _profile_of(self, pod: PodView) -> FilterProfile:
        return self._profiles.get(pod.scheduler_name, DEFAULT_PROFILE)


def _tied(pods: Iterable[PodView], profiles: SchedulerProfiles) -> tuple[dict[str, list[int]], list[int]]:
    """Positions of pods by the nodes that their affinity names, as those of a DaemonSet do, and of all other pods."""
    tied: dict[str, list[int]] = {}
    free: list[int] = []
    for position, pod in enumerate(pods):
        profile = profiles.get(pod.scheduler_name, DEFAULT_PROFILE)
        names = named_nodes(pod) if "NodeAffinity" in (*profile.filters, *profile.prefilters) else None
        if names is None:
            free.append(position)
        for name in names or ():
            tied.setdefault(name, []).append(position)
    return tied, free


def why_not(
    pod: PodView, node: NodeView, profiles: SchedulerProfiles = NO_PROFILES, *, relabels: bool = False
) -> Misfit | None:
    """The same by the filters that read pod and node alone."""
    profile = profiles.get(pod.scheduler_name, DEFAULT_PROFILE)
    misfit = None
    for variant in expected_after(node, mps=_shares(pod.gpu), relabels=relabels):
        verdict = filter_node(pod, variant, ignored_taints=IGNORED_TAINTS, profile=profile)
        if not isinstance(verdict, Misfit):
            return None
        misfit = misfit or verdict
    return misfit


@lru_cache(maxsize=4096)
def _shares(requests: tuple[tuple[str, int], ...]) -> bool:
    """An MPS slice is among it, so that a GPU of the node is shared. Thousands of pods request the same few things."""
    return any(isinstance(kind_of(resource), MpsRequest) for resource, _ in requests)


def _selected_labels(
    pods: Iterable[PodView], volumes: Iterable[VolumeState], profiles: SchedulerProfiles
) -> tuple[list[str], bool]:
    """Label keys that any pod, its volumes or its scheduler select by, and whether any selects by the node's name."""
    keys: set[str] = set()
    by_name = False
    terms: list[NodeSelectorTerm] = []
    for pod in pods:
        keys.update(key for key, _ in pod.node_selector)
        terms += pod.node_affinity or ()
    for profile in profiles.values():
        terms += profile.added_affinity or ()
    for state in volumes:
        for volume in state.bound:
            terms += (volume and volume.node_affinity) or ()
        keys.update(ZONE_LABELS if state.zoned else ())
        keys.update(key for volume in state.zoned for key, _ in volume.zones)
    for term in terms:
        keys.update(requirement.key for requirement in term.labels)
        by_name = by_name or bool(term.fields)
    return sorted(keys), by_name


def _facts(node: NodeView, keys: Sequence[str], by_name: bool) -> Hashable:
    labels = tuple(node.labels.get(key) for key in keys)
    return (node.unschedulable, node.taints, labels, node.features, node.name if by_name else "")

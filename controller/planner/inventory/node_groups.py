"""Groups nodes that the pending pods cannot tell apart, and finds the groups that each pod may use.

Takes nodes and pods, returns group numbers per node and, per pod, the groups whose nodes pass kube-scheduler's filters
on the node object, labelled as they will be once they are cut, and reach its bound volumes. Filters run once per kind
of pod and kind of node, never per pair: of a node's labels only those count that some selector names. Where CPU or
memory is scarce, nodes of unlike size are apart as well. Our own taint of a node in change is ignored. What that takes
is paid for: where a pass has no work left, a kind with costly rules, or one of very many, is not examined, and may use
no node.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from controller.model.demand import Demand, kind_of
from controller.model.scheduling import (
    DEFAULT_PROFILE,
    NO_CONTEXT,
    ZONE_LABELS,
    FilterProfile,
    NodeSelectorTerm,
    Requirement,
    SchedulerProfiles,
    SchedulingContext,
)
from controller.model.views import NodeView, PodView
from controller.planner.effort import Effort
from controller.simulator.filters import filter_node
from controller.simulator.relabel import RELABELLED, expected_after
from controller.simulator.selectors import named_nodes, tried_on_each
from controller.simulator.verdicts import DoesNotFit
from controller.simulator.volumes import VolumeState, settled_refusal, settled_volumes
from crds.v1alpha1.names import TAINT_CHANGING
from partitioning.resources import MpsRequest

IGNORED_TAINTS = frozenset({TAINT_CHANGING})
"""Set by the agent while partitions are withdrawn, and removed by it: no reason not to plan a pod there."""
NO_PROFILES: SchedulerProfiles = {}
_ALWAYS = 20
"""So many kinds of each namespace are examined in any case, unless their rules are costly."""
_LOOKS = 500_000
"""At nodes, for these: beyond that, where very many namespaces have kinds of their own, they wait for their turns."""
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
        *,
        effort: Effort | None = None,
        first: Sequence[str] = (),
        left: frozenset[str] = frozenset(),
        kept: Iterable[tuple[str, int]] = (),
    ) -> None:
        """`relabelled`: names of nodes whose device plugin changes their labels when they begin to share GPUs.

        `first`: uids of pods whose kinds are examined before all others; `left`: of those that are not examined;
        `kept`: of those that have a place or a drain on a node, which they may use whatever work is left.
        """
        self._profiles, self._relabelled = profiles, relabelled
        self._effort = effort or Effort()
        self._left = left
        self._volumes: dict[str, VolumeState] = {}
        """Of pods, by uid, whose volumes groups take into account."""
        self._samples: list[PodView] = []
        self._owners: list[dict[str, PodView]] = []
        """By kind, the first pod of each namespace that has any: none decides whether those of another are examined."""
        numbered: dict[Hashable, int] = {}
        self._kinds: dict[str, int] = {}
        """By uid of the pod: to compare rules may take long."""
        for pod in pods:
            state = settled_volumes(pod, self._profile_of(pod), context) if pod.volumes else None
            if state is not None:
                self._volumes[pod.uid] = state
            constraints = self._constraints_of(pod)
            self._kinds[pod.uid] = kind = numbered.setdefault(constraints, len(numbered))
            if kind == len(self._samples):
                self._samples.append(pod)
                self._owners.append({})
            self._owners[kind].setdefault(pod.namespace, pod)
        samples = self._samples
        keys, by_name = _selected_labels(samples, map(self._volumes_of, samples), profiles)
        unlike: dict[Hashable, int] = {}
        self._facts_of = [
            unlike.setdefault((_facts(node, keys, by_name), node.name in relabelled), len(unlike)) for node in nodes
        ]
        self._nodes = {number: node for node, number in zip(reversed(nodes), reversed(self._facts_of), strict=True)}
        self._labelled: dict[tuple[str, str], list[int]] = {}
        """Unlike nodes by a label that some pod selects."""
        for number, node in self._nodes.items():
            for key in node.labels.keys() & keys:
                self._labelled.setdefault((key, node.labels[key]), []).append(number)
        self._by_name = {node.name: number for node, number in zip(nodes, self._facts_of, strict=True)}
        self._given = {node.name: node for node in nodes}
        self._known: dict[int, list[DoesNotFit | None]] = {}
        """By kind, what each of the unlike nodes answers: thousands of nodes are alike."""
        self._able: list[set[int]] = [set() for _ in unlike]
        self._unexamined = self._examine(list(dict.fromkeys(self._kinds[uid] for uid in first if uid in self._kinds)))
        self._effort.cut |= bool(self._unexamined or left)
        for uid, place in kept:
            kind = self._kinds.get(uid, -1)
            if kind in self._unexamined and self._refusal(samples[kind], nodes[place]) is None:
                self._able[self._facts_of[place]].add(kind)
        self.group_of: Sequence[int] = ()
        self.tell_apart(samples)

    def tell_apart(self, pods: Iterable[PodView], *, by_size: bool = False) -> bool:
        """Number the groups for these pods: they are all that tells nodes apart. Whether that changes any group.

        `by_size`: nodes with much and with little CPU or memory are apart as well.
        """
        kinds, before = {self.kind_of(pod) for pod in pods}, self.group_of
        numbers: dict[tuple[tuple[int, ...], Hashable], int] = {}
        """Of groups, by the kinds that may use their nodes, and by size."""
        able = [tuple(sorted(found & kinds)) if found else None for found in self._able]
        sizes = [_size(node) if by_size else () for node in self._given.values()]
        self.group_of = [
            -1 if (key := able[facts]) is None else numbers.setdefault((key, size), len(numbers))
            for facts, size in zip(self._facts_of, sizes, strict=True)
        ]
        allowed: list[list[int]] = [[] for _ in self._samples]
        for (found, _), number in numbers.items():
            for kind in found:
                allowed[kind].append(number)
        self._allowed = [tuple(found) for found in allowed]
        return self.group_of != before

    def may_use(self, pod: PodView, node: int) -> bool:
        """Whether nothing keeps the pod off the node, by its position, whatever else runs there."""
        return self.kind_of(pod) in self._able[self._facts_of[node]]

    def _examine(self, first: Sequence[int]) -> frozenset[int]:
        """Hold each kind against unlike nodes; returns those for which there was no work left."""
        number, ranks = Counter[str](), list[int]()
        for pod, owners in zip(self._samples, self._owners, strict=True):
            number.update(owners.keys() if cost_on_node(pod) == 1 else ())
            ranks.append(min(number[namespace] for namespace in owners) if cost_on_node(pod) == 1 else _ALWAYS + 1)
        others, left = list[int](), _LOOKS
        for kind in sorted(range(len(ranks)), key=ranks.__getitem__):
            if ranks[kind] > _ALWAYS or left <= 0:
                others.append(kind)
            else:
                self._examined(kind, always=True)
                left -= len(self._able)
        self._effort.begin(Counter(chain.from_iterable(self._owners[kind] for kind in others)), half=True)
        turns = {kind: number for number, kind in enumerate(first)}
        others.sort(key=lambda kind: (-self._samples[kind].priority, turns.get(kind, len(turns))))
        later = [kind for kind in others if not self._examined(kind)]
        later = [kind for kind in later if not self._examined(kind)]
        # No share pays for one of these: what others leave is for the first of each namespace, one after the other.
        self._effort.keep_no_shares()
        one_each = set({name: kind for kind in reversed(later) for name in self._owners[kind]}.values())
        return frozenset([kind for kind in later if kind not in one_each or not self._examined(kind)])

    def _examined(self, kind: int, *, always: bool = False) -> bool:
        """Find the nodes that it may use; False where no namespace that has such pods has work left for that."""
        pod, owners = self._samples[kind], self._owners[kind].values()
        narrow = self._narrowed(pod)
        places = range(len(self._able)) if narrow is None else sorted(narrow)
        work = cost_on_node(pod) * len(places)
        payer = next((one for one in owners if always or self._effort.free(one.namespace) >= work), None)
        if payer is None or (not always and self._effort.over()):
            return False
        found = [self._refusal(pod, self._nodes[place]) for place in places]
        # To divide pods among the nodes that accept them takes as much again.
        self._effort.spend(payer, work + found.count(None))
        for place, refusal in zip(places, found, strict=True):
            if refusal is None:
                self._able[place].add(kind)
        if narrow is None:
            self._known[kind] = found
        for one in owners:
            self._effort.done(one.namespace)
        return True

    def _narrowed(self, pod: PodView) -> Collection[int] | None:
        """Of unlike nodes those that it may use at most, where it names nodes or a label of theirs; None: all."""
        profile = self._profile_of(pod)
        if "NodeAffinity" in (*profile.filters, *profile.prefilters):  # a pod of a DaemonSet names one
            names = named_nodes(pod)
            if names is not None:
                return {self._by_name[name] for name in names if name in self._by_name}
        required, terms = list[Requirement](), list[Sequence[NodeSelectorTerm] | None]()
        if "NodeAffinity" in profile.filters:
            terms.append(pod.node_affinity)
            required += [Requirement(key=key, operator="In", values=(value,)) for key, value in pod.node_selector]
        if "VolumeBinding" in profile.filters:
            terms += [volume.node_affinity for volume in self._volumes_of(pod).bound if volume is not None]
        required += [one for alone in terms if alone is not None and len(alone) == 1 for one in alone[0].labels]
        found = [
            [place for value in one.values for place in self._labelled.get((one.key, value), ())]
            for one in required
            if one.operator == "In" and one.key not in RELABELLED
        ]
        return min(map(set, found), key=len) if found else None

    def unexamined(self, pod: PodView) -> bool:
        """There was no work left to find out which nodes it may use."""
        return pod.uid in self._left or self.kind_of(pod) in self._unexamined

    def too_costly(self, pod: PodView) -> bool:
        """No pass has work enough for its rules on so many nodes: to wait does not help."""
        places = self._narrowed(pod)
        return 2 * cost_on_node(pod) * len(self._able if places is None else places) > self._effort.most

    def kind_of(self, pod: PodView) -> int:
        """A number: pods of one kind may use the same nodes."""
        return self._kinds[pod.uid]

    def allowed(self, pod: PodView) -> tuple[int, ...]:
        """The groups that the pod may use, in rising order."""
        return () if pod.uid in self._left else self._allowed[self.kind_of(pod)]

    def why_not(self, pod: PodView, node: NodeView) -> DoesNotFit | None:
        """What keeps a pod off a node whatever else runs there; None: nothing, as the node will be once it is cut."""
        known = self._known.get(self._kinds.get(pod.uid, -1))
        place = self._by_name.get(node.name, -1)
        if known is not None and place >= 0 and self._given.get(node.name) is node:
            return known[place]
        return self._refusal(pod, node)

    def _refusal(self, pod: PodView, node: NodeView) -> DoesNotFit | None:
        """By the filters that read pod and node alone."""
        profile, refusal = self._profile_of(pod), None
        for variant in expected_after(node, mps=_shares(pod.gpu), relabels=node.name in self._relabelled):
            verdict = filter_node(pod, variant, ignored_taints=IGNORED_TAINTS, profile=profile)
            if not isinstance(verdict, DoesNotFit):
                return settled_refusal(node, self._volumes_of(pod), profile)
            refusal = refusal or verdict
        return refusal

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


def cost_on_node(pod: PodView) -> int:
    """Of a filter on one node. How many values a list has costs nothing there: they are looked up in a set."""
    terms = tried_on_each(pod.node_affinity) // 8 if pod.node_affinity else 0
    return 1 + (len(pod.node_selector) + len(pod.tolerations)) // 64 + terms


@lru_cache(maxsize=4096)
def _shares(requests: tuple[tuple[str, int], ...]) -> bool:
    """An MPS slice is among it, so that a GPU of the node is shared. Thousands of pods request the same few things."""
    return any(isinstance(kind_of(resource), MpsRequest) for resource, _ in requests)


def _selected_labels(
    pods: Iterable[PodView], volumes: Iterable[VolumeState], profiles: SchedulerProfiles
) -> tuple[set[str], bool]:
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
    return keys, by_name


def _size(node: NodeView) -> Hashable:
    """Alike for nodes with up to twice the CPU and memory of others."""
    return tuple(node.allocatable.get(name, 0).bit_length() for name in ("cpu", "memory"))


def _facts(node: NodeView, keys: Set[str], by_name: bool) -> Hashable:
    labels = tuple([(key, node.labels[key]) for key in sorted(node.labels.keys() & keys)])
    return (node.unschedulable, node.taints, labels, node.features, node.name if by_name else "")

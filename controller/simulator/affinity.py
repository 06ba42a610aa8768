"""InterPodAffinity of kube-scheduler 1.36: required terms of the pod, and anti-affinity of the pods that are there.

`AffinityState` holds, for one pod and per topology pair (key and value), how many pods its terms match, and how many
keep it away; its caller adds and removes pods. All affinity terms must be matched by one and the same pods; while no
pod matches them anywhere, a pod that matches them itself may be the first. Terminating pods count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.model.scheduling import PodAffinityTerm
from controller.model.views import PodView
from controller.simulator.population import Place, Population, Resident
from controller.simulator.selectors import selects
from controller.simulator.verdicts import Misfit, misfit

PLUGIN = "InterPodAffinity"
_AFFINITY = misfit(PLUGIN, "node(s) didn't match pod affinity rules")
_ANTI_AFFINITY = misfit(PLUGIN, "node(s) didn't match pod anti-affinity rules")
_EXISTING = misfit(PLUGIN, "node(s) didn't satisfy existing pods anti-affinity rules")

Namespaces = Mapping[str, Mapping[str, str]]
_Pairs = Counter[tuple[str, str]]


class AffinityState:
    """One pod's view of the cluster."""

    def __init__(self, pod: PodView, population: Population, namespaces: Namespaces) -> None:
        self._pod = pod
        self._own = dict(pod.labels)
        self._own_namespace = namespaces.get(pod.namespace, {})
        self._affinity = _named(pod.affinity, namespaces)
        self._anti_affinity = _named(pod.anti_affinity, namespaces)
        self._attracting: _Pairs = Counter()
        self._avoided: _Pairs = Counter()
        self._repelling: _Pairs = Counter()
        if self._affinity or self._anti_affinity:
            for namespace in _meant((*self._affinity, *self._anti_affinity), population.namespaces()):
                for resident in population.of_namespace(namespace):
                    self._count_mine(resident, 1)
        for resident in population.repelling.values():
            self._count_theirs(resident, 1)

    def count(self, resident: Resident, number: int) -> None:
        """A pod came (1) or went (-1)."""
        self._count_mine(resident, number)
        self._count_theirs(resident, number)

    @property
    def attractions(self) -> int:
        """In how many places there is what attracts the pod: while it stays and pods only come, refusals stay, too."""
        return len(self._attracting)

    @property
    def repelled(self) -> bool:
        """Some pod that is there keeps it off some node."""
        return bool(self._repelling)

    def refusal(self, place: Place) -> Misfit | None:
        """Why the pod may not go there."""
        labels = place.node.labels
        if self._affinity and not self._attracted(labels):
            return _AFFINITY
        if any(self._avoided[pair] > 0 for pair in _pairs(self._anti_affinity, labels)):
            return _ANTI_AFFINITY
        if self._repelling and any(self._repelling[pair] > 0 for pair in labels.items()):
            return _EXISTING
        return None

    def _attracted(self, labels: Mapping[str, str]) -> bool:
        pairs = _pairs(self._affinity, labels)
        if len(pairs) < len(self._affinity):
            return False
        if all(self._attracting[pair] > 0 for pair in pairs):
            return True
        return not self._attracting and all(_meets(term, self._pod.namespace, self._own) for term in self._affinity)

    def _count_mine(self, resident: Resident, number: int) -> None:
        namespace, labels, here = resident.pod.namespace, resident.labels, resident.node.labels
        if self._affinity and all(_meets(term, namespace, labels) for term in self._affinity):
            _count(self._attracting, _pairs(self._affinity, here), number)
        if self._anti_affinity:
            met = [term for term in self._anti_affinity if _meets(term, namespace, labels)]
            _count(self._avoided, _pairs(met, here), number)

    def _count_theirs(self, resident: Resident, number: int) -> None:
        terms = resident.pod.anti_affinity
        if terms:
            met = [term for term in terms if _meets(term, self._pod.namespace, self._own, self._own_namespace)]
            _count(self._repelling, _pairs(met, resident.node.labels), number)


def selects_itself(term: PodAffinityTerm, pod: PodView) -> bool:
    """Pods like this one are among those that the term means: all of them go where the first one goes."""
    return _meets(term, pod.namespace, dict(pod.labels))


def _named(terms: Sequence[PodAffinityTerm], namespaces: Namespaces) -> tuple[PodAffinityTerm, ...]:
    """The pod's own terms, with the namespaces that their selector means now."""
    return tuple(_named_term(term, namespaces) for term in terms)


def _named_term(term: PodAffinityTerm, namespaces: Namespaces) -> PodAffinityTerm:
    """The selector stays: 1.36 evaluates it again, without labels, so that one which misses a label means every pod."""
    if term.namespace_selector is None:
        return term
    selected = {name for name, labels in namespaces.items() if selects(term.namespace_selector, labels)}
    return replace(term, namespaces=tuple(sorted(selected | set(term.namespaces))))


def _meant(terms: Iterable[PodAffinityTerm], present: Sequence[str]) -> list[str]:
    """Those of the namespaces present that any term means."""
    named: set[str] = set()
    for term in terms:
        if selects(term.namespace_selector, {}):
            return list(present)
        named.update(term.namespaces)
    return [name for name in present if name in named]


def _meets(
    term: PodAffinityTerm, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None = None
) -> bool:
    """A pod with these labels is one that the term means."""
    if namespace not in term.namespaces and not selects(term.namespace_selector, namespace_labels or {}):
        return False
    return selects(term.selector, labels)


def _pairs(terms: Iterable[PodAffinityTerm], labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """Topology pairs of a node, one per term whose key it has."""
    return [(term.topology_key, labels[term.topology_key]) for term in terms if term.topology_key in labels]


def _count(counts: _Pairs, pairs: Iterable[tuple[str, str]], number: int) -> None:
    for pair in pairs:
        counts[pair] += number
        if not counts[pair]:
            del counts[pair]

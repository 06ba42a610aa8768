"""InterPodAffinity of kube-scheduler 1.36: required terms of the pod, and anti-affinity of the pods that are there.

`AffinityState` holds, for one pod and per topology pair (key and value), how many pods its terms match, and how many
keep it away; its caller adds and removes pods. All affinity terms must be matched by one and the same pods; while no
pod matches them anywhere, a pod that matches them itself may be the first. Terminating pods count. A term visits only
the pods that have a label which it selects; never all pods of the cluster for each term.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from controller.model.scheduling import LabelSelector, PodAffinityTerm
from controller.model.views import PodView
from controller.simulator.population import Place, Population, Resident, Sought
from controller.simulator.selectors import selects
from controller.simulator.terms import Pair, TermIndex, narrowest
from controller.simulator.verdicts import DoesNotFit, does_not_fit

PLUGIN = "InterPodAffinity"
NOT_ATTRACTED = does_not_fit(PLUGIN, "node(s) didn't match pod affinity rules")
_ANTI_AFFINITY = does_not_fit(PLUGIN, "node(s) didn't match pod anti-affinity rules")
_EXISTING = does_not_fit(PLUGIN, "node(s) didn't satisfy existing pods anti-affinity rules")

Namespaces = Mapping[str, Mapping[str, str]]
_Pairs = Counter[Pair]


class AffinityState:
    """One pod's view of the cluster."""

    def __init__(self, pod: PodView, population: Population, namespaces: Namespaces) -> None:
        self._pod = pod
        self._own = dict(pod.labels)
        self._namespaces = namespaces
        self._population = population
        self._affinity = pod.affinity
        self._keys = tuple(dict.fromkeys(term.topology_key for term in pod.affinity))
        self._avoiding: TermIndex = population.terms_of(pod)
        self._attracting: _Pairs = Counter()
        self._avoided: _Pairs = Counter()
        self._repelling: _Pairs = Counter()
        if self._affinity:
            for resident in population.candidates(*_sought(min(self._affinity, key=_breadth))):
                self._count_attracting(resident, 1)
        population.foresee(map(_sought, pod.anti_affinity))
        for term in pod.anti_affinity:
            for resident in population.candidates(*_sought(term)):
                self._count_avoided(term, resident, 1)
        for term, places in population.repellers.selecting(self._own):
            population.visit()
            if self._means_me(term):
                self._repelling.update({pair: number for pair, number in places.items() if number})

    def count(self, resident: Resident, number: int) -> None:
        """A pod came (1) or went (-1)."""
        self._population.visit()
        if self._affinity:
            self._count_attracting(resident, number)
        for term in self._avoiding.selecting(resident.labels):
            self._population.visit()
            self._count_avoided(term, resident, number)
        if resident.pod.anti_affinity:
            for term in self._population.terms_of(resident.pod).selecting(self._own):
                self._population.visit()
                if self._means_me(term):
                    _count(self._repelling, (term.topology_key,), resident.node.labels, number)

    @property
    def counted(self) -> list[LabelSelector | None]:
        """Of the pods that it counts: what attracts it is selected by all of its affinity terms."""
        nearest = [min(self._affinity, key=_breadth)] if self._affinity else []
        return [term.selector for term in (*nearest, *self._pod.anti_affinity)]

    @property
    def attractions(self) -> int:
        """Topology pairs with a matching pod: while this stays and pods are only added, earlier refusals stay valid."""
        return len(self._attracting)

    @property
    def repelled(self) -> bool:
        """Some pod that is there keeps it off some node."""
        return bool(self._repelling)

    def refusal(self, place: Place) -> DoesNotFit | None:
        """Why the pod may not go there."""
        labels = place.node.labels
        if self._affinity and not self._attracted(labels):
            return NOT_ATTRACTED
        if self._avoided and any(self._avoided[pair] > 0 for pair in labels.items()):
            return _ANTI_AFFINITY
        if self._repelling and any(self._repelling[pair] > 0 for pair in labels.items()):
            return _EXISTING
        return None

    def _attracted(self, labels: Mapping[str, str]) -> bool:
        if not all(key in labels for key in self._keys):
            return False
        if all(self._attracting[key, labels[key]] > 0 for key in self._keys):
            return True
        return not self._attracting and self._meets_all(self._pod.namespace, self._own)

    def _count_attracting(self, resident: Resident, number: int) -> None:
        if self._meets_all(resident.pod.namespace, resident.labels):
            _count(self._attracting, self._keys, resident.node.labels, number)

    def _count_avoided(self, term: PodAffinityTerm, resident: Resident, number: int) -> None:
        if self._meets(term, resident.pod.namespace, resident.labels):
            _count(self._avoided, (term.topology_key,), resident.node.labels, number)

    def _meets_all(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(self._meets(term, namespace, labels) for term in self._affinity)

    def _meets(self, term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        return _meets(term, namespace, labels, self._namespaces.get(namespace, {}))

    def _means_me(self, term: PodAffinityTerm) -> bool:
        """The term of another pod means this one."""
        if self._pod.namespace not in term.named and not selects(
            term.namespace_selector, self._namespaces.get(self._pod.namespace, {})
        ):
            return False
        return selects(term.selector, self._own)


def selects_itself(term: PodAffinityTerm, pod: PodView) -> bool:
    """Pods like this one are among those that the term means: all of them go where the first one goes."""
    return _meets(term, pod.namespace, dict(pod.labels), {})


def _meets(
    term: PodAffinityTerm, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> bool:
    """A pod with these labels is one that the pod's own term means.

    1.36 resolves the selector of namespaces, and evaluates it again without labels: one which misses a label means
    every pod.
    """
    if not selects(term.selector, labels):
        return False
    others = term.namespace_selector
    return namespace in term.named or selects(others, namespace_labels) or selects(others, {})


def _breadth(term: PodAffinityTerm) -> tuple[bool, int]:
    """How many values it may select; the smaller, the fewer pods are visited."""
    requirement = narrowest(term.selector) if term.selector is not None else None
    return (requirement is None, len(requirement.values) if requirement is not None else 0)


def _sought(term: PodAffinityTerm) -> Sought:
    return (term.selector, term.namespaces if term.namespace_selector is None else None)


def _count(counts: _Pairs, keys: Iterable[str], labels: Mapping[str, str], number: int) -> None:
    """Count in the topology pairs of a node, one per key that it has."""
    for key in keys:
        if key in labels:
            pair = (key, labels[key])
            counts[pair] += number
            if not counts[pair]:
                del counts[pair]

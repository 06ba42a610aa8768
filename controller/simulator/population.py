"""The nodes and the pods on them, indexed for constraints between pods.

`Population` takes nodes, and pods as they are added and removed; it returns the pods that a selector could mean, found
by the value of one label, and what keeps others away. Labels are maps here, made once per pod. `visits` counts the pods
and terms that were looked at for any pod: what constraints cost, the same on every machine. Nothing here filters.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, starmap

from controller.model.scheduling import LabelSelector, PodAffinityTerm, looked_up
from controller.model.views import NodeView, PodView
from controller.simulator.terms import Repellers, TermIndex, narrowest
from controller.simulator.usage import Usage

Sought = tuple[LabelSelector | None, tuple[str, ...] | None]
"""Of which pods a term may mean some: a selector, and the namespaces (None: all)."""


@dataclass(slots=True, eq=False)
class Resident:
    """A pod on a node."""

    pod: PodView
    node: NodeView
    labels: Mapping[str, str]


@dataclass(slots=True, eq=False)
class Place:
    """A node and what is on it."""

    node: NodeView
    residents: dict[str, Resident] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


class TooManyVisitsError(Exception):
    """A limit on visits is reached."""


class Population:
    """Pods on nodes that are not known do not count, as for kube-scheduler."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.places = {node.name: Place(node) for node in nodes}
        self.visits = 0
        self.most_visits: int | None = None
        """Where it is set, `candidates` and `visit` raise an error rather than let `visits` exceed it."""
        self.repelling = 0
        """How many pods have anti-affinity terms."""
        self.repellers = Repellers()
        self.claim_users: Counter[tuple[str, str]] = Counter()
        """Pods per claim, by its namespace and name; claims that are made for one pod are left out."""
        self.of_nodes: dict[Hashable, object] = {}
        """What filters have worked out of the nodes alone, which never change."""
        self._by_uid: dict[str, Resident] = {}
        self._by_namespace: dict[str, dict[str, Resident]] = {}
        self._by_label: dict[str, dict[str, dict[str, dict[str, Resident]]]] | None = None
        """By key, value, namespace and uid; made when it is first needed."""
        self._terms: dict[int, tuple[tuple[PodAffinityTerm, ...], TermIndex]] = {}

    def add(self, pod: PodView, node_name: str) -> Resident | None:
        """The pod as it is there; None where there is no such node."""
        place = self.places.get(node_name)
        if place is None:
            return None
        resident = Resident(pod, place.node, dict(pod.labels))
        place.residents[pod.uid] = resident
        place.usage.add(resident.pod)
        self._by_uid[pod.uid] = resident
        self._by_namespace.setdefault(pod.namespace, {})[pod.uid] = resident
        if self._by_label is not None:
            _put(self._by_label, resident)
        self._repel(resident, 1)
        self.claim_users.update(_shared_claims(pod))
        return resident

    def remove(self, uid: str) -> Resident | None:
        """The pod as it was, or None."""
        resident = self._by_uid.get(uid)
        if resident is not None:
            place = self.places[resident.node.name]
            del place.residents[uid]
            place.usage.remove(resident.pod)
            del self._by_uid[uid]
            self._repel(resident, -1)
            if self._by_label is not None:
                for key, value in resident.labels.items():
                    del self._by_label[key][value][resident.pod.namespace][uid]
            self.claim_users.subtract(_shared_claims(resident.pod))
            fellows = self._by_namespace[resident.pod.namespace]
            del fellows[uid]
            if not fellows:
                del self._by_namespace[resident.pod.namespace]
        return resident

    def candidates(self, selector: LabelSelector | None, namespaces: tuple[str, ...] | None) -> Iterator[Resident]:
        """The pods that it may select in these namespaces, or (None) in all of them; each once."""
        for found in self._groups(selector, namespaces):
            self.visit(len(found))
            yield from found.values()

    def foresee(self, sought: Iterable[Sought]) -> None:
        """Raise the error before any candidate is visited, where all of these together are too many."""
        expected = looked = 0
        for found in chain.from_iterable(starmap(self._groups, sought)):
            expected, looked = expected + len(found), looked + 1
            if self.most_visits is not None and self.visits + expected > self.most_visits:
                self.visits += looked
                raise TooManyVisitsError

    def _groups(
        self, selector: LabelSelector | None, namespaces: tuple[str, ...] | None
    ) -> Iterator[Mapping[str, Resident]]:
        """The candidates by label and namespace."""
        if selector is None:
            return
        requirement = narrowest(selector)
        if requirement is None:
            fellows = [self._by_namespace]
        else:
            present = self._labels().get(requirement.key, {})
            fellows = [present[value] for value in _both(present, requirement.values, requirement.allowed)]
        for by_namespace in fellows:
            for name in by_namespace if namespaces is None else _both(by_namespace, namespaces, looked_up(namespaces)):
                yield by_namespace[name]

    def visit(self, number: int = 1) -> None:
        """Count what is looked at."""
        if self.most_visits is not None and self.visits + number > self.most_visits:
            raise TooManyVisitsError
        self.visits += number

    def terms_of(self, pod: PodView) -> TermIndex:
        """Its anti-affinity terms; made once for the terms of one object."""
        terms = pod.anti_affinity
        known = self._terms.get(id(terms))
        if known is None:
            known = self._terms[id(terms)] = (terms, TermIndex(terms))  # kept, so that its id stays its own
        return known[1]

    def _labels(self) -> dict[str, dict[str, dict[str, dict[str, Resident]]]]:
        if self._by_label is None:
            self._by_label = {}
            for resident in self._by_uid.values():
                _put(self._by_label, resident)
        return self._by_label

    def _repel(self, resident: Resident, number: int) -> None:
        terms = resident.pod.anti_affinity
        if terms:
            self.repelling += number
            self.repellers.count(terms, resident.node.labels, number)


def _put(index: dict[str, dict[str, dict[str, dict[str, Resident]]]], resident: Resident) -> None:
    pod = resident.pod
    for key, value in resident.labels.items():
        index.setdefault(key, {}).setdefault(value, {}).setdefault(pod.namespace, {})[pod.uid] = resident


def _both(present: Mapping[str, object], names: tuple[str, ...], allowed: Collection[str]) -> list[str]:
    """The names that are present, in the time that the smaller of the two takes."""
    if len(present) < len(names):
        return [name for name in present if name in allowed]
    return [name for name in dict.fromkeys(names) if name in present]


def _shared_claims(pod: PodView) -> list[tuple[str, str]]:
    return [(pod.namespace, use.claim) for use in pod.volumes if not use.ephemeral]

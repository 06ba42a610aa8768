"""The nodes and the pods on them, indexed for constraints between pods.

`Population` holds nodes, and pods as they are added and removed; it returns, per namespace, the pods that a selector
could mean, and those with anti-affinity of their own. Labels are maps here, made once per pod. Nothing here filters.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller.model.views import NodeView, PodView
from controller.simulator.usage import Usage


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


class Population:
    """Pods on nodes that are not known do not count, as for kube-scheduler."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.repelling: dict[str, Resident] = {}
        """By uid: pods with anti-affinity terms."""
        self.claim_users: Counter[tuple[str, str]] = Counter()
        """Pods per claim, by its namespace and name; claims that are made for one pod are left out."""
        self._by_uid: dict[str, Resident] = {}
        self._by_namespace: dict[str, dict[str, Resident]] = {}

    def put_node(self, node: NodeView) -> None:
        """A new node, or a known one as it is now."""
        place = self.places.get(node.name)
        if place is None:
            self.places[node.name] = Place(node)
            return
        place.node = node
        for resident in place.residents.values():
            resident.node = node

    def remove_node(self, name: str) -> None:
        place = self.places.pop(name, None)
        for resident in list(place.residents.values()) if place is not None else ():
            self._forget(resident)

    def add(self, pod: PodView, node_name: str) -> Resident | None:
        """The pod as it is there; None where there is no such node."""
        place = self.places.get(node_name)
        if place is None:
            return None
        resident = Resident(
            pod if pod.node == node_name else replace(pod, node=node_name), place.node, dict(pod.labels)
        )
        place.residents[pod.uid] = resident
        place.usage.add(resident.pod)
        self._by_uid[pod.uid] = resident
        self._by_namespace.setdefault(pod.namespace, {})[pod.uid] = resident
        if pod.anti_affinity:
            self.repelling[pod.uid] = resident
        self.claim_users.update(_shared_claims(pod))
        return resident

    def remove(self, uid: str) -> Resident | None:
        """The pod as it was, or None."""
        resident = self._by_uid.get(uid)
        if resident is not None:
            place = self.places[resident.node.name]
            del place.residents[uid]
            place.usage.remove(resident.pod)
            self._forget(resident)
        return resident

    def resident(self, uid: str) -> Resident | None:
        return self._by_uid.get(uid)

    def of_namespace(self, namespace: str) -> Iterator[Resident]:
        yield from self._by_namespace.get(namespace, {}).values()

    def namespaces(self) -> list[str]:
        """Those that have pods, sorted."""
        return sorted(self._by_namespace)

    def _forget(self, resident: Resident) -> None:
        uid = resident.pod.uid
        del self._by_uid[uid]
        self.repelling.pop(uid, None)
        self.claim_users.subtract(_shared_claims(resident.pod))
        fellows = self._by_namespace[resident.pod.namespace]
        del fellows[uid]
        if not fellows:
            del self._by_namespace[resident.pod.namespace]


def _shared_claims(pod: PodView) -> list[tuple[str, str]]:
    return [(pod.namespace, use.claim) for use in pod.volumes if not use.ephemeral]

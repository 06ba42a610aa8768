"""What pods may ask of their node and of each other, such that all of it is met where the pods were placed.

Each rule takes pods with their places and changes the pods; `judged` is then a pod that may use the same nodes and asks
it of the node alone, where there is one. Never moves a pod.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from controller.model.scheduling import (
    ClaimUse,
    ClaimView,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Requirement,
    SchedulingContext,
    SpreadConstraint,
    VolumeView,
)
from controller.model.views import NodeView, PodView

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


@dataclass(slots=True, kw_only=True, eq=False)
class Placed:
    """A pending pod and where it fits."""

    pod: PodView
    node: str
    zone: str
    judged: PodView | None = None


@dataclass(slots=True)
class Named:
    """What pods name, as it is made: claims, volumes, apps."""

    claims: dict[tuple[str, str], ClaimView] = field(default_factory=dict)
    volumes: dict[str, VolumeView] = field(default_factory=dict)
    apps: int = 0

    def next_app(self) -> str:
        self.apps += 1
        return f"app-{self.apps}"

    def bind(self, one: Placed, volume: VolumeView) -> None:
        """The pod has a claim that is bound to this volume."""
        name = f"data-{len(self.claims)}"
        self.claims[one.pod.namespace, name] = ClaimView(volume=name, bound=True)
        self.volumes[name] = volume
        one.pod = replace(one.pod, volumes=(ClaimUse(claim=name),))

    def context(self) -> SchedulingContext:
        return SchedulingContext(claims=self.claims, volumes=self.volumes, storage_classes={}, namespaces={})


Rule = Callable[[random.Random, Sequence[Placed], Sequence[NodeView], Named], None]


def harmless_claims(_rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], named: Named) -> None:
    """Volumes that every node reaches."""
    for one in placed:
        one.judged = one.pod
        named.bind(one, VolumeView())


def zonal_claims(_rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], named: Named) -> None:
    """By the volume's label and by its node affinity, in turn: both are in use."""
    for number, one in enumerate(placed):
        one.judged = replace(one.pod, node_selector=((ZONE, one.zone),))
        by_label = VolumeView(zones=((ZONE, (one.zone,)),))
        named.bind(one, by_label if number % 2 else VolumeView(node_affinity=_at(ZONE, one.zone)))


def node_claims(_rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], named: Named) -> None:
    """Local volumes."""
    for one in placed:
        one.judged = replace(one.pod, node_selector=((HOST, one.node),))
        named.bind(one, VolumeView(node_affinity=_at(HOST, one.node)))


def hostnames(_rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], _named: Named) -> None:
    """A selector by hostname, as topology-aware queues write it."""
    for one in placed:
        one.pod = replace(one.pod, node_selector=((HOST, one.node),))


def one_per_node(_rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], _named: Named) -> None:
    """One pod of each node is a DaemonSet's."""
    seen: set[str] = set()
    for one in sorted(placed, key=lambda one: one.pod.requests[0][1]):
        if one.node not in seen:
            seen.add(one.node)
            term = NodeSelectorTerm(fields=(Requirement(key="metadata.name", operator="In", values=(one.node,)),))
            one.pod = replace(one.pod, node_affinity=(term,))


def jobs(_rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], _named: Named) -> None:
    """A few pods each, with a label of their own that they spread by: any node will do."""
    for number, one in enumerate(placed):
        one.judged = one.pod
        spread = SpreadConstraint(topology_key=HOST, max_skew=8, selector=_selector("job-name", f"job-{number}"))
        one.pod = replace(one.pod, labels=(("job-name", f"job-{number}"),), spread=(spread,))


def zone_spread(rng: random.Random, placed: Sequence[Placed], nodes: Sequence[NodeView], named: Named) -> None:
    """Deployments of alike pods, over the zones of all nodes as evenly as it goes."""
    zones = sorted({node.labels[ZONE] for node in nodes})
    for alike in _alike(placed):
        by_zone = {zone: [one for one in alike if one.zone == zone] for zone in zones}
        while all(by_zone.values()):
            most = min(rng.randint(1, 6), *map(len, by_zone.values()))
            members = [by_zone[zone].pop() for zone in zones for _ in range(most)]
            members += [by_zone[zone].pop() for zone in zones if by_zone[zone] and rng.random() < 0.3]
            app = _app(members, named)
            for one in members:
                one.pod = replace(one.pod, spread=(SpreadConstraint(topology_key=ZONE, selector=app),))


def zone_affinity(rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], named: Named) -> None:
    """Teams of pods that stay together in a zone."""
    by_zone: dict[str, list[Placed]] = {}
    for one in placed:
        by_zone.setdefault(one.zone, []).append(one)
    for members in (team for zone in sorted(by_zone) for team in _cut(rng, by_zone[zone], 12)):
        app = _app(members, named)
        for one in members:
            one.pod = replace(one.pod, affinity=(_term(one, ZONE, app),))


def host_anti_affinity(rng: random.Random, placed: Sequence[Placed], _nodes: Sequence[NodeView], named: Named) -> None:
    """Replicas of alike pods, one on each node."""
    for alike in _alike(placed):
        by_node: dict[str, list[Placed]] = {}
        for one in alike:
            by_node.setdefault(one.node, []).append(one)
        while by_node:
            firsts = [by_node[node].pop() for node in sorted(by_node)]
            by_node = {node: members for node, members in by_node.items() if members}
            for members in _cut(rng, rng.sample(firsts, len(firsts)), 10):
                app = _app(members, named)
                for one in members:
                    one.pod = replace(one.pod, anti_affinity=(_term(one, HOST, app),))


def _at(key: str, value: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm(labels=(Requirement(key=key, operator="In", values=(value,)),)),)


def _selector(key: str, value: str) -> LabelSelector:
    return LabelSelector(requirements=(Requirement(key=key, operator="In", values=(value,)),))


def _term(one: Placed, topology: str, app: LabelSelector) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=topology, selector=app, namespaces=(one.pod.namespace,))


def _app(members: Sequence[Placed], named: Named) -> LabelSelector:
    """They get a label that no other pod has; `named` counts them."""
    name = named.next_app()
    for one in members:
        one.pod = replace(one.pod, labels=(("app", name),))
    return _selector("app", name)


def _alike(placed: Sequence[Placed]) -> list[list[Placed]]:
    """Of one Deployment are pods with equal requests and priority."""
    found: dict[object, list[Placed]] = {}
    for one in placed:
        found.setdefault((one.pod.requests, one.pod.priority), []).append(one)
    return list(found.values())


def _cut(rng: random.Random, members: Sequence[Placed], most: int) -> Iterator[Sequence[Placed]]:
    start = 0
    while start < len(members):
        size = rng.randint(2, most)
        yield members[start : start + size]
        start += size

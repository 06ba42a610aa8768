"""PodTopologySpread of kube-scheduler 1.36: hard constraints only, since no other ever filters.

`SpreadState` counts, for one pod, the matching pods per domain of each of its constraints; its caller adds and removes
pods. A node counts where it has the keys of all constraints and passes the pod's own affinity (by default) and taints
(where requested). Terminating pods and those of other namespaces do not count.
"""

from collections.abc import Iterable, Mapping, Sequence

from controller.model.scheduling import LabelSelector, SpreadConstraint
from controller.model.views import NodeView, PodView
from controller.simulator.population import Place, Population, Resident
from controller.simulator.selectors import matches_node, selects, untolerated
from controller.simulator.verdicts import DoesNotFit, does_not_fit

PLUGIN = "PodTopologySpread"
_MISSING = does_not_fit(PLUGIN, "node(s) didn't match pod topology spread constraints (missing required label)")
SKEWED = does_not_fit(PLUGIN, "node(s) didn't match pod topology spread constraints")
_NO_DOMAIN = 2**31 - 1
"""The least count where there is no domain at all."""


class _Domains:
    """Matching pods per domain, with the least of the counts at hand."""

    def __init__(self, domains: Mapping[str, int]) -> None:
        """`domains`: each with 0."""
        self.counts = dict(domains)
        self._domains_with = {0: len(domains)}
        self._least = 0

    def add(self, domain: str, number: int) -> None:
        before = self.counts[domain]
        after = before + number
        self.counts[domain] = after
        self._domains_with[before] -= 1
        if not self._domains_with[before]:
            del self._domains_with[before]
        self._domains_with[after] = self._domains_with.get(after, 0) + 1
        self._least = min(self._least, after)

    @property
    def least(self) -> int:
        if not self.counts:
            return _NO_DOMAIN
        # Counts rise by one pod at a time, so this walk is as long as what was added since the last one.
        while self._least not in self._domains_with:
            self._least += 1
        return self._least


class SpreadState:
    """One pod's view of the cluster."""

    def __init__(self, pod: PodView, constraints: Sequence[SpreadConstraint], population: Population) -> None:
        self._pod = pod
        self._constraints = constraints
        own = dict(pod.labels)
        self._itself = [selects(constraint.selector, own) for constraint in constraints]
        self._keys = [constraint.topology_key for constraint in constraints]
        self._counting = [position for position, constraint in enumerate(constraints) if _counts_any(constraint)]
        self._by_node, domains = _nodes_that_count(pod, constraints, population)
        self._domains = list(map(_Domains, domains))
        for position in self._counting:
            for resident in population.candidates(constraints[position].selector, (pod.namespace,)):
                self._count(resident, 1, (position,))

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return sum(len(domains.counts) for domains in self._domains)

    @property
    def counted(self) -> list[LabelSelector | None]:
        """Of the pods that it counts."""
        return [self._constraints[position].selector for position in self._counting]

    def count(self, resident: Resident, number: int) -> None:
        """A pod came (1) or went (-1)."""
        self._count(resident, number, self._counting)

    def _count(self, resident: Resident, number: int, positions: Iterable[int]) -> None:
        """For the constraints at these positions."""
        if resident.pod.namespace != self._pod.namespace or resident.pod.deleting:
            return
        matching = [one for one in positions if selects(self._constraints[one].selector, resident.labels)]
        if matching:
            where = self._by_node[resident.node.name]
            for position in matching:
                if position in where:
                    self._domains[position].add(resident.node.labels[self._keys[position]], number)

    @property
    def leasts(self) -> tuple[int, ...]:
        """Per constraint the least count: while it stays and pods only come, a refusal stays, too."""
        return tuple(
            0 if len(domains.counts) < constraint.min_domains else domains.least
            for constraint, domains in zip(self._constraints, self._domains, strict=True)
        )

    def refusal(self, place: Place) -> DoesNotFit | None:
        """Why the pod may not go there."""
        labels = place.node.labels
        for constraint, domains, itself in zip(self._constraints, self._domains, self._itself, strict=True):
            domain = labels.get(constraint.topology_key)
            if domain is None:
                return _MISSING
            least = 0 if len(domains.counts) < constraint.min_domains else domains.least
            if domains.counts.get(domain, 0) + itself - least > constraint.max_skew:
                return SKEWED
        return None


def _nodes_that_count(
    pod: PodView, constraints: Sequence[SpreadConstraint], population: Population
) -> tuple[Mapping[str, Sequence[int]], Sequence[Mapping[str, int]]]:
    """By name of the node, for which constraints, by position, it is one of a domain; and these domains, each with 0.

    Thousands of pods with labels of their own share it.
    """
    rules = tuple((one.topology_key, one.honors_affinity, one.honors_taints) for one in constraints)
    selection = (pod.node_selector, pod.node_affinity) if any(one.honors_affinity for one in constraints) else None
    tolerations = pod.tolerations if any(one.honors_taints for one in constraints) else None
    key = (PLUGIN, rules, selection, tolerations)
    known = population.of_nodes.get(key)
    if known is None:
        counted = {name: _counted(pod, place.node, constraints) for name, place in population.places.items()}
        domains: list[dict[str, int]] = [{} for _ in constraints]
        for name, positions in counted.items():
            for position in positions:
                domains[position][population.places[name].node.labels[rules[position][0]]] = 0
        known = population.of_nodes[key] = counted, domains
    assert isinstance(known, tuple)
    return known


def _counted(pod: PodView, node: NodeView, constraints: Sequence[SpreadConstraint]) -> list[int]:
    """The constraints, by position, for which this node is one of a domain."""
    if any(one.topology_key not in node.labels for one in constraints):
        return []
    affine: bool | None = None
    tolerated: bool | None = None
    counted = []
    for position, constraint in enumerate(constraints):
        if constraint.honors_affinity:
            affine = matches_node(pod, node) if affine is None else affine
            if not affine:
                continue
        if constraint.honors_taints:
            tolerated = untolerated(pod, node.taints) is None if tolerated is None else tolerated
            if not tolerated:
                continue
        counted.append(position)
    return counted


def _counts_any(constraint: SpreadConstraint) -> bool:
    """An empty selector counts no pod, though it matches the pod itself."""
    return constraint.selector is not None and bool(constraint.selector.requirements)

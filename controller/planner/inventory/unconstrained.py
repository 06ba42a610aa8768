"""Takes off pods what keeps them off no node: spread and anti-affinity by labels that too few pods have.

Takes the demands of a pass and its snapshot, returns demands. A spread constraint that allows as many pods in a domain
as there are pods at all holds everywhere, and so does anti-affinity that concerns no other pod: Jobs and single
replicas are made like that. How many pods a selector matches is never counted: how many have one of the labels that it
requires is more.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controller.model.demand import Demand
from controller.model.scheduling import LabelSelector, PodAffinityTerm, SpreadConstraint
from controller.model.snapshot import Snapshot
from controller.model.views import PodView


def without_harmless(demands: Sequence[Demand], snapshot: Snapshot) -> list[Demand]:
    named = {
        requirement.key
        for demand in demands
        for selector in _selectors(demand.pod)
        for requirement in selector.requirements
        if requirement.operator == "In"
    }
    if not named:
        return list(demands)
    pods = (*snapshot.pods, *snapshot.other_pods, *snapshot.pending)
    number = Counter(
        (pod.namespace, key, value) for pod in pods if pod.labels for key, value in pod.labels if key in named
    )
    keys = frozenset.intersection(*(frozenset(node.labels) for node in snapshot.nodes)) if snapshot.nodes else ()
    harmless = _Harmless(number, frozenset(keys))
    return [_freed(demand, harmless) for demand in demands]


class _Harmless:
    def __init__(self, number: Counter[tuple[str, str, str]], everywhere: frozenset[str]) -> None:
        """`number` of pods by namespace and label; `everywhere`: labels that all nodes have."""
        self._number, self._everywhere = number, everywhere

    def spread(self, pod: PodView, constraint: SpreadConstraint) -> bool:
        if not constraint.hard:
            return True
        most = self._most((pod.namespace,), constraint.selector)
        return constraint.topology_key in self._everywhere and most is not None and most <= constraint.max_skew

    def apart(self, pod: PodView, term: PodAffinityTerm) -> bool:
        """No other pod than this one can match."""
        if term.namespace_selector is not None or term.selector is None or not term.selector.readable:
            return False
        most = self._most(term.namespaces, term.selector)
        labels = dict(pod.labels)
        itself = pod.namespace in term.named and all(
            labels.get(one.key) in one.values for one in term.selector.requirements if one.operator == "In"
        )
        return most is not None and most <= int(itself)

    def _most(self, namespaces: Iterable[str], selector: LabelSelector | None) -> int | None:
        """No more pods match; None: not known."""
        if selector is None or not selector.readable:
            return None
        return min(
            (
                sum(self._number[where, one.key, value] for where in namespaces for value in one.values)
                for one in selector.requirements
                if one.operator == "In"
            ),
            default=None,
        )


def _selectors(pod: PodView) -> Iterable[LabelSelector]:
    found = (*(one.selector for one in pod.spread if one.hard), *(term.selector for term in pod.anti_affinity))
    return (selector for selector in found if selector is not None)


def _freed(demand: Demand, harmless: _Harmless) -> Demand:
    pod = demand.pod
    # Kept as ones that never filter: a pod that has any gets no default ones of its scheduler.
    spread = tuple(replace(one, hard=False) if harmless.spread(pod, one) else one for one in pod.spread)
    apart = tuple(term for term in pod.anti_affinity if not harmless.apart(pod, term))
    if spread == pod.spread and apart == pod.anti_affinity:
        return demand
    return replace(demand, pod=replace(pod, spread=spread, anti_affinity=apart))

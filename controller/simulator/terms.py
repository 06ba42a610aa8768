"""Finds affinity terms by the labels that they select, so that a pod meets only those that can mean it.

A term is kept under the values of one requirement: the `In` with the fewest values, matchLabels included. Terms without
one (NotIn, Exists), and those with many values, are tried with every pod. Whether a term that is found does mean the
pod is for the caller to judge.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement

Pair = tuple[str, str]
"""A label, or a topology pair: key and value."""
_MOST_VALUES = 64
"""A term with more values is tried with every pod: to keep it under all of them would cost more."""


def narrowest(selector: LabelSelector) -> Requirement | None:
    """The requirement with the fewest values that a label must have."""
    found = [requirement for requirement in selector.requirements if requirement.operator == "In"]
    return min(found, key=lambda requirement: len(requirement.values)) if found else None


def labels_of(selector: LabelSelector | None) -> list[Pair]:
    """One of these a pod must have; empty where no few labels tell."""
    requirement = narrowest(selector) if selector is not None else None
    if requirement is None or len(requirement.values) > _MOST_VALUES:
        return []
    return [(requirement.key, value) for value in dict.fromkeys(requirement.values)]


class TermIndex:
    """The terms of one pod."""

    def __init__(self, terms: Sequence[PodAffinityTerm]) -> None:
        self._by_label: dict[Pair, list[PodAffinityTerm]] = {}
        self._others: list[PodAffinityTerm] = []
        for term in terms:
            pairs = labels_of(term.selector)
            for pair in pairs:
                self._by_label.setdefault(pair, []).append(term)
            if not pairs:
                self._others.append(term)

    def selecting(self, labels: Mapping[str, str]) -> Iterator[PodAffinityTerm]:
        """Those that may select these labels."""
        yield from self._others
        if self._by_label:
            for pair in labels.items():
                yield from self._by_label.get(pair, ())


class Repellers:
    """Anti-affinity of the pods that are there: equal terms of thousands of pods are one."""

    def __init__(self) -> None:
        self._places: dict[PodAffinityTerm, Counter[Pair]] = {}
        """How many pods with the term are in each place that its topology key names."""
        self._by_label: dict[Pair, list[tuple[PodAffinityTerm, Counter[Pair]]]] = {}
        self._others: list[tuple[PodAffinityTerm, Counter[Pair]]] = []

    def count(self, terms: Sequence[PodAffinityTerm], node_labels: Mapping[str, str], number: int) -> None:
        """A pod with these terms came to such a node (1) or left it (-1)."""
        for term in terms:
            places = self._places.get(term)
            if places is None:
                places = self._places[term] = Counter()
                pairs = labels_of(term.selector)
                for pair in pairs:
                    self._by_label.setdefault(pair, []).append((term, places))
                if not pairs:
                    self._others.append((term, places))
            value = node_labels.get(term.topology_key)
            if value is not None:
                places[term.topology_key, value] += number

    def selecting(self, labels: Mapping[str, str]) -> Iterator[tuple[PodAffinityTerm, Mapping[Pair, int]]]:
        """Those that may select these labels, and where the pods are that have them."""
        yield from self._others
        for pair in labels.items():
            yield from self._by_label.get(pair, ())

"""The pods that came and went, in order, found by what a kind of pod counts: its selectors, and terms that select it.

A kind that has received some of the changes gets the others; of these it may get all, or those with one of the labels
that it counts. Whether a change concerns it after all is for the kind to judge.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from controller.model.scheduling import LabelSelector
from controller.simulator.population import Resident
from controller.simulator.terms import Pair, labels_of

_FEW_TERMS = 8
"""A pod with more anti-affinity terms concerns every kind: to keep it under all of them would cost more."""


@dataclass(frozen=True, slots=True)
class Interest:
    """Pods with one of `labels` are counted, and those that keep away pods with one of `own`."""

    labels: Collection[Pair]
    own: Collection[Pair]


def interest_in(selectors: Iterable[LabelSelector | None], own: Mapping[str, str]) -> Interest | None:
    """Of a pod with these labels that counts what these selectors select; None: in all changes."""
    labels: set[Pair] = set()
    for selector in selectors:
        pairs = labels_of(selector)
        if not pairs:
            return None
        labels.update(pairs)
    return Interest(labels, tuple(own.items()))


class Changes:
    def __init__(self) -> None:
        self._all: list[tuple[Resident, int]] = []
        self._by_label: dict[Pair | None, list[int]] = {}
        self._repelling: dict[Pair | None, list[int]] = {}
        """By a label that a term selects; None where no few labels tell."""

    def __len__(self) -> int:
        return len(self._all)

    def clear(self) -> None:
        self._all.clear()
        self._by_label.clear()
        self._repelling.clear()

    def add(self, resident: Resident, number: int) -> None:
        """A pod came (1) or went (-1)."""
        position = len(self._all)
        self._all.append((resident, number))
        for pair in resident.labels.items():
            self._by_label.setdefault(pair, []).append(position)
        terms = resident.pod.anti_affinity
        for term in terms if len(terms) <= _FEW_TERMS else ():
            for selected in labels_of(term.selector) or (None,):
                self._repelling.setdefault(selected, []).append(position)
        if len(terms) > _FEW_TERMS:
            self._repelling.setdefault(None, []).append(position)

    def since(self, seen: int, interest: Interest | None) -> list[tuple[Resident, int]]:
        """Those after the first `seen`; where looking them up takes no longer than walking them, only of interest."""
        if interest is None or len(self._all) - seen <= len(interest.labels) + len(interest.own):
            return self._all[seen:]
        found: set[int] = set()
        for lists, pairs in ((self._by_label, interest.labels), (self._repelling, (None, *interest.own))):
            for pair in pairs:
                positions = lists.get(pair)
                if positions is not None and positions[-1] >= seen:
                    found.update(positions[bisect_left(positions, seen) :])
        return [self._all[position] for position in sorted(found)]

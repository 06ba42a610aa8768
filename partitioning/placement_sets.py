"""Enumerates every way to place a given set of instances into a mask.

Takes a mask and the instances, as the placements each may take; yields tuples of placements, each set once and in a
fixed order. Exhaustive, which is cheap: an A100 has 2,319 layouts in all, and a given geometry a few dozen. Never ranks
them: the caller knows which set is best.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from partitioning.placements import Placement

PlacementSet: TypeAlias = tuple[Placement, ...]


def enumerate_placements(mask: int, wanted: Sequence[tuple[Sequence[Placement], int]]) -> Iterator[PlacementSet]:
    """`wanted` holds, per profile, its placements by rising start and how many instances of it."""
    # Large instances first: they have the fewest places, so that dead ends are met early.
    ordered = sorted(
        ((places, count) for places, count in wanted if places and count),
        key=lambda item: (-item[0][0].instance.size, item[0][0].instance.profile),
    )
    if any(count > len(places) for places, count in wanted):
        return iter(())
    return _enumerated(mask, ordered)


def _enumerated(mask: int, wanted: Sequence[tuple[Sequence[Placement], int]]) -> Iterator[PlacementSet]:
    if not wanted:
        yield ()
        return
    places, count = wanted[0]
    for position, place in enumerate(places):
        if mask & place.blockers:
            continue
        # Equal instances take rising starts, or each set of places would come once per permutation.
        later = [(places[position + 1 :], count - 1)] if count > 1 else []
        for rest in _enumerated(mask | place.taken, [*later, *wanted[1:]]):
            yield (place, *rest)

"""Enumerates the geometries: which counts of instances per profile can be added to a mask.

Takes the placements of some profiles, returns count vectors (tuples in the order of these profiles): all of them or the
Pareto front. Goes memory slice by memory slice, with one memo per mask, so that masks share their work. The number of
geometries grows exponentially with what a GPU reports, so that `few` is to be asked first where a report is a
stranger's. Never returns where the instances are placed; see `enumerate_placements`.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TypeAlias

from partitioning.placements import Placement

Vector: TypeAlias = tuple[int, ...]

# A vector is held as one integer with a byte per profile, so that adding an instance is one addition. Counts stay below
# 128 (no model has as many slots), which leaves the top bit of each byte as a guard for comparing all bytes at once.
_BITS = 8
_COUNT = (1 << _BITS) - 1
_GUARD = 1 << (_BITS - 1)
_MOST_WORK = 500_000
"""Vectors, and pairs of them that are compared: ten times as many as any known model has, some tenths of a second."""


class _TooManyError(Exception):
    """A limit on work is spent."""


class Geometries:
    """Count vectors by mask, computed once per mask."""

    def __init__(self, slots: int, placements: Sequence[Sequence[Placement]]) -> None:
        """`placements` holds one sequence per profile; its order is that of the vectors."""
        self._every_slot = (1 << slots) - 1
        self._profiles = len(placements)
        self._guards = sum(_GUARD << (_BITS * position) for position in range(len(placements)))
        self._by_start: dict[int, list[tuple[int, Placement]]] = {}
        for position, places in enumerate(placements):
            for place in places:
                self._by_start.setdefault(place.instance.start, []).append((1 << (_BITS * position), place))
        self._all: dict[int, frozenset[int]] = {}
        self._fronts: dict[int, frozenset[int]] = {}
        self._left: float = inf
        """How much may still be done."""

    def few(self) -> bool:
        """Whether all that an empty GPU can become may be enumerated; gives up beyond a limit."""
        self._left = _MOST_WORK
        try:
            self._every_vector(0)
            self._front(0)
        except _TooManyError:
            return False
        finally:
            self._left = inf
        return True

    def vectors(self, mask: int) -> tuple[Vector, ...]:
        """Every vector that fits, the empty one included; largest first."""
        return self._unpacked(self._every_vector(mask))

    def pareto(self, mask: int) -> tuple[Vector, ...]:
        """The vectors that fit and of which no other one holds at least as many of each profile; largest first."""
        return self._unpacked(self._front(mask))

    def _every_vector(self, mask: int) -> frozenset[int]:
        found = self._all.get(mask)
        if found is None:
            found = self._all[mask] = self._collected(self._grown(mask, self._every_vector))
        return found

    def _front(self, mask: int) -> frozenset[int]:
        # Pruning at every step loses nothing: what is dominated stays so when both sides get the same instance.
        found = self._fronts.get(mask)
        if found is None:
            grown = self._collected(self._grown(mask, self._front))
            self._spend(len(grown) ** 2)
            found = self._fronts[mask] = frozenset(
                vector for vector in grown if not any(self._dominates(other, vector) for other in grown)
            )
        return found

    def _collected(self, grown: Iterator[int]) -> frozenset[int]:
        return frozenset(grown) if self._left == inf else frozenset(map(self._spend_one, grown))

    def _spend_one(self, vector: int) -> int:
        self._spend(1)
        return vector

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise _TooManyError

    def _grown(self, mask: int, rest: Callable[[int], frozenset[int]]) -> Iterator[int]:
        """Vectors by what happens at the first free slot: nothing, or an instance that begins there."""
        free = ~mask & self._every_slot
        if not free:
            yield 0
            return
        first = free & -free
        yield from rest(mask | first)
        for unit, place in self._by_start.get(first.bit_length() - 1, ()):
            if not mask & place.blockers:
                yield from (unit + vector for vector in rest(mask | place.taken))

    def _dominates(self, one: int, other: int) -> bool:
        """`one` holds at least as many of each profile: no byte of the difference borrows its guard."""
        return one != other and ((one | self._guards) - other) & self._guards == self._guards

    def _unpacked(self, packed: frozenset[int]) -> tuple[Vector, ...]:
        vectors = (
            tuple(vector >> (_BITS * position) & _COUNT for position in range(self._profiles)) for vector in packed
        )
        return tuple(sorted(vectors, reverse=True))

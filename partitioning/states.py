"""Tabulates what still fits into a GPU, per mask: the planner's tables.

Takes a mask (`mask_of` a layout that must stay), returns the geometries that can be added to it, what the free space is
worth, and the cheapest place for one more instance. Everything is computed once per mask and then looked up: 8,000 GPUs
have some hundred masks. Values are in compute slices, not memory slices: the last memory slice of an A100 serves few
profiles, and a planner that counts it like the others loses pods by it. Where a model's geometries are restricted, or
its driver makes fewer instances than there is room for, nothing that goes beyond that counts as fitting. Never decides
what to keep or destroy; see `packing`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from partitioning.geometries import Geometries, Vector
from partitioning.layouts import Instance
from partitioning.models import GpuModel
from partitioning.placements import Placement, limits_of, occupancy, placements_of, rule_bits

Room = tuple[int, int, int, int]
"""How much a mask leaves free, the greater the better to leave behind: compute and memory slices of the largest
instance that can still be created, compute slices of the best geometry that can, and how many placements are still
open. NVIDIA's driver, too, chooses so that most stay open."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Choice:
    """Where one more instance of a profile costs least."""

    loss: int
    """Compute slices by which the potential shrinks."""
    placement: Placement
    mask: int
    """The mask with the instance in it."""


@lru_cache(maxsize=512)
def state_table(model: GpuModel, profiles: frozenset[str] | None = None) -> "StateTable":
    """The table of a model, restricted to some profiles or (None) with all of them. Made once and shared."""
    return StateTable(model, profiles)


@lru_cache(maxsize=256)
def enumerable(model: GpuModel) -> bool:
    """Whether a table of the model takes no more time than those of known models; of others none must be made."""
    return StateTable(model).few()


class StateTable:
    """Lookups by mask for one model and a subset of its profiles. Take it from `state_table`, which shares the caches.

    A vector counts instances per profile in the order of `profiles`.
    """

    def __init__(self, model: GpuModel, profiles: Iterable[str] | None = None) -> None:
        """Names that the model lacks are left out; aliases are not resolved: a pod gets exactly what it requests."""
        requested = None if profiles is None else frozenset(profiles)
        specs = [spec for spec in model.profiles if spec.starts and (requested is None or spec.name in requested)]
        every_placement = placements_of(model)
        self.model = model
        self.profiles: tuple[str, ...] = tuple(spec.name for spec in specs)
        self.compute_slices: tuple[int, ...] = tuple(spec.compute_slices for spec in specs)
        self._placements = {name: every_placement[name] for name in self.profiles}
        self._rules = (1 << rule_bits(model)) - 1
        self._geometries = Geometries(model.slots, [self._by_rules_alone(name) for name in self.profiles])
        self._allowed = None if model.geometries is None else tuple(dict(counts) for counts in model.geometries)
        self._limits = limits_of(model)
        self._counted = {
            name: sum(place.taken & ~self._rules for place in places) for name, places in every_placement.items()
        }
        self._allows: dict[int, bool] = {}
        self._vectors: dict[int, tuple[Vector, ...]] = {}
        self._pareto: dict[int, tuple[Vector, ...]] = {}
        self._potentials: dict[tuple[int, frozenset[str] | None], int] = {}
        self._rooms: dict[int, Room] = {}
        self._choices: dict[tuple[int, str, frozenset[str] | None], Choice | None] = {}

    def few(self) -> bool:
        """Whether all geometries of an empty GPU may be enumerated."""
        return self._geometries.few()

    def mask_of(self, instances: Iterable[Instance]) -> int:
        """The mask of instances that must stay; profiles outside this table count as well."""
        return occupancy(self.model, instances)

    def placements(self, profile: str) -> tuple[Placement, ...]:
        """Every placement of a profile, by start; none if the table lacks the profile."""
        return self._placements.get(profile, ())

    def fitting(self, mask: int, profile: str) -> tuple[Placement, ...]:
        """The placements of a profile that are open in this mask, by start."""
        open_places = (place for place in self.placements(profile) if not mask & place.blockers)
        if self._unlimited:
            return tuple(open_places)
        return tuple(place for place in open_places if self.allows(mask | place.taken, mask))

    @property
    def _unlimited(self) -> bool:
        """Room is all that an instance needs."""
        return self._allowed is None and not self._limits

    def allows(self, mask: int, before: int) -> bool:
        """Whether a layout of this mask, made of the one before, is within what geometries and driver allow."""
        if self._limits and not self._within_limits(self._counts(mask), self._counts(before)):
            return False
        if self._allowed is None:
            return True
        found = self._allows.get(mask)
        if found is None:
            found = self._allows[mask] = self._within(self._counts(mask))
        return found

    def _counts(self, mask: int) -> dict[str, int]:
        return {name: (mask & bits).bit_count() for name, bits in self._counted.items() if mask & bits}

    def _within_limits(self, counts: Mapping[str, int], before: Mapping[str, int]) -> bool:
        """A pinned layout may hold more than this driver makes: then only nothing of that profile is added."""
        return all(
            counts.get(name, 0) <= most or counts.get(name, 0) <= before.get(name, 0)
            for name, most in self._limits.items()
        )

    def _within(self, counts: Mapping[str, int]) -> bool:
        """Part of one of the allowed geometries."""
        return any(all(count <= most.get(name, 0) for name, count in counts.items()) for most in self._allowed or ())

    def _addable(self, mask: int, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        """Those that keep within the allowed geometries; the empty one always does."""
        if self._unlimited:
            return vectors
        here = self._counts(mask)
        return tuple(
            vector
            for vector in vectors
            if not any(vector) or self._may_become(_sum(here, zip(self.profiles, vector, strict=True)), here)
        )

    def _may_become(self, counts: Mapping[str, int], here: Mapping[str, int]) -> bool:
        return self._within_limits(counts, here) and (self._allowed is None or self._within(counts))

    def _largest(self, mask: int) -> tuple[Vector, ...]:
        if self._unlimited:
            return self._geometries.pareto(mask)
        vectors = self.vectors(mask)
        return tuple(vector for vector in vectors if not any(_dominates(other, vector) for other in vectors))

    def _by_rules_alone(self, profile: str) -> tuple[Placement, ...]:
        """Placements of a profile without the bits that are for counting, so that masks share their work."""
        return tuple(replace(place, taken=place.taken & self._rules) for place in self._placements[profile])

    def vectors(self, mask: int) -> tuple[Vector, ...]:
        """Every geometry that can be added to this mask, the empty one included; largest first."""
        found = self._vectors.get(mask)
        if found is None:
            found = self._vectors[mask] = self._addable(mask, self._geometries.vectors(mask & self._rules))
        return found

    def pareto(self, mask: int) -> tuple[Vector, ...]:
        """The geometries of `vectors` of which no other one holds at least as many of each profile; largest first."""
        found = self._pareto.get(mask)
        if found is None:
            found = self._pareto[mask] = self._largest(mask)
        return found

    def potential(self, mask: int, demanded: frozenset[str] | None = None) -> int:
        """The most compute slices that instances of the demanded profiles (None: all of the table) can still get."""
        key = (mask, demanded)
        found = self._potentials.get(key)
        if found is None:
            weights = tuple(
                slices if demanded is None or name in demanded else 0
                for name, slices in zip(self.profiles, self.compute_slices, strict=True)
            )
            found = self._potentials[key] = max(
                sum(count * weight for count, weight in zip(vector, weights, strict=True))
                for vector in self.pareto(mask)
            )
        return found

    def room(self, mask: int) -> Room:
        """What this mask leaves free for the table's profiles."""
        found = self._rooms.get(mask)
        if found is None:
            still_open = [
                (slices, place.instance.size)
                for name, slices in zip(self.profiles, self.compute_slices, strict=True)
                for place in self.fitting(mask, name)
            ]
            largest = max(still_open, default=(0, 0))
            found = self._rooms[mask] = (*largest, self.potential(mask), len(still_open))
        return found

    def cheapest(self, mask: int, profile: str, demanded: frozenset[str] | None = None) -> Choice | None:
        """Where one more instance shrinks the potential least, then leaves most room; None if it fits nowhere."""
        key = (mask, profile, demanded)
        if key not in self._choices:
            before = self.potential(mask, demanded)
            best: Choice | None = None
            for place in self.fitting(mask, profile):
                after = mask | place.taken
                choice = Choice(loss=before - self.potential(after, demanded), placement=place, mask=after)
                if best is None or self._is_cheaper(choice, best):
                    best = choice
            self._choices[key] = best
        return self._choices[key]

    def _is_cheaper(self, one: Choice, other: Choice) -> bool:
        """Equal ones keep the lower start, which came first."""
        return one.loss < other.loss or (one.loss == other.loss and self.room(one.mask) > self.room(other.mask))


def _sum(counts: Mapping[str, int], more: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {**counts, **{name: counts.get(name, 0) + count for name, count in more if count}}


def _dominates(one: Vector, other: Vector) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))

"""Packs MIG instances onto one GPU: decides where requested instances go.

Takes the instances that must stay (`pinned`), counts of requested profiles (`requested`), and idle instances that are
better kept (`prefer`); returns a layout or the reason why there is none. The search is exact. Best is the arrangement
that destroys the fewest idle instances, then creates the fewest new ones, then leaves the most room for later, then has
the lowest starts: same input, same answer. Never moves or drops a pinned instance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from partitioning.geometries import Vector
from partitioning.layouts import EMPTY, Instance, Layout, check_layout, check_limits, check_together
from partitioning.models import GpuModel
from partitioning.placement_sets import PlacementSet, enumerate_placements
from partitioning.placements import Placement, limits_of, occupancy, placement_of
from partitioning.states import Room, StateTable, state_table

Counts: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The requested instances fit."""

    layout: Layout
    """Pinned and requested instances, nothing else."""
    spare: Layout
    """Preferred instances that are not needed and can stay untouched alongside `layout`."""

    @property
    def with_spare(self) -> Layout:
        """The layout that destroys the least."""
        return self.layout.union(self.spare)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoesNotFit:
    """The requested instances do not fit together with the pinned ones."""

    reason: str
    missing: Counts
    """What is left over when as many compute slices as possible are served, by profile name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """One arrangement and what it costs."""

    destroyed: int
    created: int
    room: Room
    room_with_spare: Room
    placed: Layout
    spare: Layout

    def is_better_than(self, other: "_Scored") -> bool:
        if (self.destroyed, self.created) != (other.destroyed, other.created):
            return (self.destroyed, self.created) < (other.destroyed, other.created)
        if (self.room, self.room_with_spare) != (other.room, other.room_with_spare):
            return (self.room, self.room_with_spare) > (other.room, other.room_with_spare)
        return self.placed.instances < other.placed.instances


def pack(
    model: GpuModel, *, pinned: Layout, requested: Mapping[str, int], prefer: Layout = EMPTY
) -> Packed | DoesNotFit:
    """Place `requested` (instances per profile, in addition to the pinned ones) on one GPU.

    Pinned and preferred instances come out as they came in, even where the driver names their profile by an alias.
    """
    impossible = check_together(model, pinned)
    if impossible is not None:
        return DoesNotFit(reason=impossible, missing=tuple(sorted(requested.items())))
    counts: dict[str, int] = {}
    for name, count in sorted(requested.items()):
        spec = model.profile(name)
        if count > 0 and (spec is None or not spec.starts):
            return DoesNotFit(reason=_no_such_profile(model, name), missing=((name, count),))
        if count > 0 and spec is not None:
            counts[spec.name] = counts.get(spec.name, 0) + count
    ordered = tuple(sorted(counts.items()))
    best = _best(model, occupancy(model, pinned), ordered, prefer.without(pinned).instances)
    if best is None:
        return _no_room(model, pinned, ordered)
    return Packed(layout=pinned.union(best.placed), spare=best.spare)


@lru_cache(maxsize=65536)
def _best(model: GpuModel, mask: int, counts: Counts, prefer: tuple[Instance, ...]) -> _Scored | None:
    """The search itself, by mask: GPUs in the same state share one answer."""
    table = state_table(model)
    idle = _compatible(model, mask, prefer)
    best: _Scored | None = None
    for places in enumerate_placements(mask, [(table.placements(name), count) for name, count in counts]):
        if places and not table.allows(_with(mask, places), mask):
            continue
        scored = _scored(table, mask, places, idle)
        if best is None or scored.is_better_than(best):
            best = scored
    return best


def _compatible(model: GpuModel, mask: int, prefer: tuple[Instance, ...]) -> Mapping[Instance, Placement]:
    """The preferred instances that fit together with the pinned ones and each other, with their placements."""
    idle: dict[Instance, Placement] = {}
    for instance in prefer:
        place = placement_of(model, instance)
        if not mask & place.blockers:
            idle[instance] = place
            mask |= place.taken
    return idle


def _scored(table: StateTable, mask: int, places: PlacementSet, idle: Mapping[Instance, Placement]) -> _Scored:
    existing = {place.instance: instance for instance, place in idle.items()}
    placed = Layout.of(existing.get(place.instance, place.instance) for place in places)
    mask = with_spare = _with(mask, places)
    spare = []
    for instance, place in idle.items():
        stays = instance not in placed and not with_spare & place.blockers
        if stays and (not places or table.allows(with_spare | place.taken, with_spare)):
            spare.append(instance)
            with_spare |= place.taken
    reused = sum(place.instance in existing for place in places)
    return _Scored(
        destroyed=len(idle) - reused - len(spare),
        created=len(places) - reused,
        room=table.room(mask),
        room_with_spare=table.room(with_spare),
        placed=placed,
        spare=Layout.of(spare),
    )


def _with(mask: int, places: PlacementSet) -> int:
    for place in places:
        mask |= place.taken
    return mask


def _no_such_profile(model: GpuModel, name: str) -> str:
    if not model.mig_capable:
        return f"{model.key} has no MIG, so {name} cannot be made: use MPS slices"
    if model.profile(name) is not None:
        return f"where {name} may begin on {model.key} is not published: only the node's NVML knows"
    return f"{model.key} has no profile {name}: use one of {', '.join(spec.name for spec in model.profiles)}"


def _no_room(model: GpuModel, pinned: Layout, counts: Counts) -> DoesNotFit:
    """Name what does not fit, measured against the arrangement that serves the most compute slices."""
    table = state_table(model)
    requested = dict(counts)
    limits = tuple(requested.get(name, 0) for name in table.profiles)
    within = [
        vector
        for vector in table.vectors(table.mask_of(pinned))
        if all(count <= limit for count, limit in zip(vector, limits, strict=True))
    ]
    served = max(within, key=lambda vector: (_compute_slices(table, vector), vector))
    missing = tuple(
        (name, limit - count)
        for name, count, limit in zip(table.profiles, served, limits, strict=True)
        if limit > count
    )
    condition = f"together with what must stay ({pinned})" if len(pinned) else "even when it is empty"
    restricted = "" if model.geometries is None else " (or not allowed: its geometries are restricted)"
    most = [f"{count} x {name}" for name, count in limits_of(model).items() if requested.get(name, 0) > count]
    restricted += f" (its driver makes at most {', '.join(most)})" if most else ""
    return DoesNotFit(
        reason=f"{_spelled(counts)} do not fit on one {model.key} {condition}: "
        f"{_spelled(missing)} too many{restricted}",
        missing=missing,
    )


def _compute_slices(table: StateTable, vector: Vector) -> int:
    return sum(count * slices for count, slices in zip(vector, table.compute_slices, strict=True))


def _spelled(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts)


def instance_of(model: GpuModel, profile: str, start: int) -> Instance:
    """Also for an impossible placement: `check_layout` has the best message for it."""
    spec = model.profile(profile)
    return Instance(start=start, size=spec.size if spec else 1, profile=spec.name if spec else profile)


def check_placements(model: GpuModel, exact: Layout) -> str | None:
    """None if these exact placements can be made, else why not and what would help; one may be listed several times."""
    alone = next(filter(None, (check_layout(model, Layout.of([placed])) for placed in exact)), None)
    if alone is not None:
        return alone
    twice = next((one for one, other in pairwise(exact) if one == other), None)
    problem = f"{twice} is listed twice" if twice else check_together(model, exact)
    return problem + _remedy(model, exact) if problem else check_limits(model, exact)


def _remedy(model: GpuModel, exact: Layout) -> str:
    """For placements that are possible alone, and not together: one that can go elsewhere, or whether any could."""
    for placed in reversed(exact.instances):
        spec, others = model.profile(placed.profile), list(exact)
        others.remove(placed)
        for start in spec.starts if spec else ():
            if check_together(model, Layout.of([*others, replace(placed, start=start)])) is None:
                return f"; start {'one' if placed in others else placed.profile} at {start}, or leave start out"
    if isinstance(pack(model, pinned=EMPTY, requested=exact.counts(), prefer=EMPTY), Packed):
        return "; leave the starts out, and the agent chooses placements that fit"
    return "; the GPU has no room for all of them, so plan fewer"

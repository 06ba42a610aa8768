"""Expresses the MIG rule as integers: what a placement takes, and what must be free for it.

Takes a model, returns its placements as bit masks, so that "does it fit" is one `and`. The low `slots` bits of a mask
are memory slices. The bits above show which media profiles are present (`+me` once; `+me.all` only alongside `-me`): a
mask made from memory slices alone is right only where no such profile is pinned, so take masks from `occupancy`. For a
model whose geometries are restricted, or whose driver makes fewer instances of a profile than there is room for, there
is one more bit per placement, so that a mask shows what is counted. Never decides which placement to take; see
`packing`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from partitioning.layouts import Instance
from partitioning.models import GpuModel, ProfileSpec


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Placement:
    """One profile at one place. It fits into a mask iff `mask & blockers == 0`, and makes it `mask | taken`."""

    instance: Instance
    taken: int
    blockers: int


@lru_cache(maxsize=256)
def placements_of(model: GpuModel) -> Mapping[str, tuple[Placement, ...]]:
    """Every placement of every profile, in the model's order of profiles and by start."""
    presence = _presence_bits(model)
    free_bit = 1 << rule_bits(model)
    table: dict[str, tuple[Placement, ...]] = {}
    for spec in model.profiles:
        rivals = 0
        for other, bit in presence.items():
            if model.excludes(spec.name, other):
                rivals |= bit
        instances = [Instance(start=start, size=spec.size, profile=spec.name) for start in sorted(spec.starts)]
        placements = []
        for instance in instances:
            taken = instance.mask | presence.get(spec.name, 0)
            if model.geometries is not None or limits_of(model):
                taken, free_bit = taken | free_bit, free_bit << 1
            placements.append(Placement(instance=instance, taken=taken, blockers=instance.mask | rivals))
        table[spec.name] = tuple(placements)
    return MappingProxyType(table)


@lru_cache(maxsize=256)
def limits_of(model: GpuModel) -> Mapping[str, int]:
    """How many instances the driver makes at most, of each profile for which the places alone would allow more."""
    return MappingProxyType(
        {
            spec.name: spec.max_instances
            for spec in model.profiles
            if spec.max_instances < _apart(spec) and not model.excludes(spec.name, spec.name)
        }
    )


def _apart(spec: ProfileSpec) -> int:
    """How many instances find a place of their own on an empty GPU."""
    count = end = 0
    for start in sorted(spec.starts):
        if start >= end:
            count, end = count + 1, start + spec.size
    return count


@lru_cache(maxsize=256)
def rule_bits(model: GpuModel) -> int:
    """How many low bits of a mask decide what is possible; those above only show which placements are taken."""
    return model.slots + len(set(_presence_bits(model).values()))


def placement_of(model: GpuModel, instance: Instance) -> Placement:
    """The placement that an instance has; one that the model does not know takes its memory slices alone."""
    spec = model.profile(instance.profile)
    known = placements_of(model).get(spec.name, ()) if spec is not None else ()
    for placement in known:
        if placement.instance.start == instance.start and placement.instance.size == instance.size:
            return placement
    return Placement(instance=instance, taken=instance.mask, blockers=instance.mask)


def occupancy(model: GpuModel, instances: Iterable[Instance]) -> int:
    """The mask of a layout: memory slices that are taken, and which media profiles are present."""
    mask = 0
    for instance in instances:
        mask |= placement_of(model, instance).taken
    return mask


def _presence_bits(model: GpuModel) -> dict[str, int]:
    """One bit per group of profiles that exclude the same profiles; none for a profile that excludes nothing."""
    names = [spec.name for spec in model.profiles]
    bits: dict[str, int] = {}
    group_bits: dict[frozenset[str], int] = {}
    for name in names:
        rivals = frozenset(other for other in names if model.excludes(name, other))
        if rivals:
            bits[name] = group_bits.setdefault(rivals, 1 << (model.slots + len(group_bits)))
    return bits

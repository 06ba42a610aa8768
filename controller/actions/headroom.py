"""What of a node's MIG GPUs could still be cut now: how many of each profile, and how much of it is fragmented.

Takes the stock of one node, returns a sum that can be added to those of other nodes. On an eligible GPU everything
that does not have to stay counts as free space; on another one only its idle partitions as they are. Each profile is
counted as if it alone were placed. Knows no pods: whether a node has CPU and memory for them is not decided here.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock, mig_layout
from crds.v1alpha1.names import Partitioning
from partitioning.layouts import Layout
from partitioning.models import GpuModel
from partitioning.packing import DoesNotFit, pack

USABLE = (None, Ineligible.MANUAL, Ineligible.PAUSED)
"""Pods can get what is idle on such a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Per model, by its name; sums over GPUs."""

    placeable: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Instances by model and profile."""
    slices: Counter[str] = field(default_factory=Counter)
    """Memory slices of eligible GPUs."""
    free_slices: Counter[str] = field(default_factory=Counter)
    """Of these, what nothing in use covers."""
    largest_slices: Counter[str] = field(default_factory=Counter)
    """Of the free ones, what the largest single instance on each GPU could cover."""
    largest: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """Memory slices, compute slices and name of the largest profile of which one instance fits."""

    def add(self, other: "Headroom") -> None:
        self.placeable.update(other.placeable)
        for model, size in other.largest.items():
            self.largest[model] = max(size, self.largest.get(model, size))
        self.slices.update(other.slices)
        self.free_slices.update(other.free_slices)
        self.largest_slices.update(other.largest_slices)


def headroom(stock: NodeStock) -> Headroom:
    """Of one node."""
    found = Headroom()
    if stock.ineligible not in USABLE:
        return found
    for gpu in stock.gpus:
        if gpu.kind is Partitioning.MIG and gpu.model is not None and gpu.model.mig_capable:
            _add(found, gpu, gpu.model)
    return found


def _add(found: Headroom, gpu: GpuStock, model: GpuModel) -> None:
    name = model.names[0]
    if gpu.ineligible is not None:
        fits = tuple(Counter(part.profile for part in gpu.idle if part.profile).items())
    else:
        retained = mig_layout(gpu.retained)
        fits = _fits(model, retained)
        found.slices[name] += model.slots
        found.free_slices[name] += model.slots - retained.mask.bit_count()
        found.largest_slices[name] += max((_size(model, profile)[0] for profile, _ in fits), default=0)
    for profile, count in fits:
        found.placeable[name, profile] += count
    if fits:
        largest = max(_size(model, profile) for profile, _ in fits)
        found.largest[name] = max(largest, found.largest.get(name, largest))


@lru_cache(maxsize=4096)
def _fits(model: GpuModel, retained: Layout) -> tuple[tuple[str, int], ...]:
    """How many instances of each profile fit alongside what stays, each profile alone; none that does not fit."""
    counts = ((spec.name, _count(model, retained, spec.name, spec.max_instances)) for spec in model.profiles)
    return tuple((profile, count) for profile, count in counts if count)


def _count(model: GpuModel, retained: Layout, profile: str, most: int) -> int:
    return next(
        (
            count
            for count in range(most, 0, -1)
            if not isinstance(pack(model, pinned=retained, requested={profile: count}), DoesNotFit)
        ),
        0,
    )


def _size(model: GpuModel, profile: str) -> tuple[int, int, str]:
    spec = model.profile(profile)
    return (spec.size, spec.compute_slices, spec.name) if spec is not None else (0, 0, profile)

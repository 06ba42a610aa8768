"""Describes layouts, the placed MIG instances of one GPU, and the rule for which layouts can exist.

Takes placements, returns frozen, sorted values and, for an impossible layout, one sentence with the cause. The rule: an
instance fits iff no memory slice it covers is taken, and at most one instance owns the media engines (`+me`). That
already implies every limit on compute slices and engines. Never chooses a placement; see `packing`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from partitioning.models import GpuModel


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Instance:
    """One GPU instance at its place; `start` and `size` in memory slices."""

    start: int
    size: int
    profile: str

    @property
    def mask(self) -> int:
        """One bit per memory slice that it covers."""
        return ((1 << self.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The instances of one GPU, sorted. Made by `Layout.of`; holding one does not mean that it is possible."""

    instances: tuple[Instance, ...] = ()

    @classmethod
    def of(cls, instances: Iterable[Instance]) -> "Layout":
        return cls(instances=tuple(sorted(instances)))

    @property
    def mask(self) -> int:
        """One bit per memory slice that is taken."""
        mask = 0
        for instance in self.instances:
            mask |= instance.mask
        return mask

    def counts(self) -> dict[str, int]:
        """The geometry: instances per profile, sorted by name."""
        return dict(sorted(Counter(instance.profile for instance in self.instances).items()))

    def without(self, instances: Iterable[Instance]) -> "Layout":
        gone = frozenset(instances)
        return Layout(instances=tuple(instance for instance in self.instances if instance not in gone))

    def union(self, instances: Iterable[Instance]) -> "Layout":
        return Layout.of({*self.instances, *instances})

    def __contains__(self, instance: object) -> bool:
        return instance in self.instances

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.instances)

    def __len__(self) -> int:
        return len(self.instances)

    def __str__(self) -> str:
        return ", ".join(str(instance) for instance in self.instances) or "empty"


EMPTY = Layout()
"""A GPU without instances."""


def instance_at(model: GpuModel, profile: str, start: int) -> Instance | None:
    """The instance of a profile (or an alias of it) at a start; None if the model has no such placement."""
    spec = model.profile(profile)
    if spec is None or start not in spec.starts:
        return None
    return Instance(start=start, size=spec.size, profile=spec.name)


def with_model_names(model: GpuModel, layout: Layout) -> Layout:
    """The same layout with every alias (7g.79gb) written as the model names it, so that layouts can be compared."""
    return Layout.of(
        Instance(start=instance.start, size=instance.size, profile=spec.name) if spec is not None else instance
        for instance in layout
        for spec in (model.profile(instance.profile),)
    )


def check_layout(model: GpuModel, layout: Layout) -> str | None:
    """None for a layout that can exist on this model, else one sentence about what is impossible."""
    for instance in layout:
        problem = _impossible_alone(model, instance)
        if problem is not None:
            return problem
    return check_together(model, layout) or check_limits(model, layout)


def check_together(model: GpuModel, layout: Layout) -> str | None:
    """Only whether the instances can exist together; profiles that the model does not list pass."""
    for one, other in combinations(layout.instances, 2):
        if one.mask & other.mask:
            return f"{one} and {other} overlap: each memory slice belongs to one instance"
        if model.excludes(*_model_names(model, one, other)):
            return f"{one} and {other} exclude each other: a {model.key} has one set of media engines"
    return None


def check_limits(model: GpuModel, layout: Layout) -> str | None:
    """Only whether the driver makes so many of each profile."""
    for spec in model.profiles:
        count = sum(model.profile(instance.profile) is spec for instance in layout)
        if count > spec.max_instances:
            return f"{count} x {spec.name}: the driver of this {model.key} makes at most {spec.max_instances}"
    return None


def _impossible_alone(model: GpuModel, instance: Instance) -> str | None:
    spec = model.profile(instance.profile)
    if spec is None:
        if not model.mig_capable:
            return f"{model.key} has no MIG, so {instance.profile} cannot be made: use MPS slices"
        return f"{model.key} has no profile {instance.profile}: use one of {', '.join(s.name for s in model.profiles)}"
    if not spec.starts:
        return f"where {spec.name} may begin on {model.key} is not published: only the node's NVML knows"
    if instance.start not in spec.starts:
        return f"{spec.name} cannot begin at {instance.start} on {model.key}: use {_alternatives(spec.starts)}"
    if instance.size != spec.size:
        return f"{spec.name} covers {spec.size} memory slices on {model.key}, not {instance.size}"
    return None


def _alternatives(starts: tuple[int, ...]) -> str:
    *others, last = [str(start) for start in starts]
    return f"{', '.join(others)} or {last}" if others else last


def _model_names(model: GpuModel, *instances: Instance) -> tuple[str, str]:
    one, other = (spec.name if (spec := model.profile(i.profile)) else i.profile for i in instances)
    return one, other

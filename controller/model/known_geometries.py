"""Which MIG geometries planning may make, per GPU model, where an administrator has listed them.

A list only ever takes away: the geometries that a card supports come from NVML or the catalogue. An entry that cannot
exist is ignored with a warning. Pure; `controller.config.geometries_file` reads the file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from partitioning.layouts import EMPTY, Layout
from partitioning.models import Geometry, GpuModel, known_models, model_for_product
from partitioning.packing import DoesNotFit, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One geometry as the file has it, below the model name that the file uses."""

    name: str
    counts: Geometry

    def __str__(self) -> str:
        counts = ", ".join(f"{profile}: {count}" for profile, count in self.counts)
        return f"{{{counts}}} of {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGeometries:
    """What a file allows. Models that it does not name are not restricted."""

    entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    """By catalogue key; for names that the catalogue lacks by their words, as `words_of` sorts them."""
    warnings: tuple[str, ...] = ()

    def restrict(self, model: GpuModel, there: Layout = EMPTY) -> GpuModel:
        """The model as it may be planned with: itself where the file does not name it.

        Partitions that exist on a GPU may stay, allowed or not: the scheduler gives them to pods.
        """
        entries = self._entries_of(model)
        return model if entries is None else restricted(model, entries, _geometry(model, there))

    def ignored(self, model: GpuModel) -> tuple[str, ...]:
        """What cannot exist on this very model: for models that only NVML knows, known when it is first seen."""
        entries = self._entries_of(model) or ()
        problems = ((entry, why_impossible(model, entry)) for entry in entries)
        return tuple(f"{entry} is ignored: {problem}" for entry, problem in problems if problem is not None)

    def _entries_of(self, model: GpuModel) -> tuple[Entry, ...] | None:
        if not model.mig_capable:
            return None
        found = self.entries.get(model.key)
        names = iter(model.names)
        while found is None and (name := next(names, None)) is not None:
            found = self.entries.get(words_of(name))
        return found


def model_named(text: str) -> GpuModel | None:
    """The catalogued model of a product label, an NVML name, or a name of nos, whose words have another order."""
    return model_for_product(text.replace(" ", "-")) or _models_by_words().get(words_of(text))


@lru_cache(maxsize=1)
def _models_by_words() -> Mapping[str, GpuModel]:
    return {words_of(name): model for model in reversed(known_models()) for name in model.names}


def words_of(name: str) -> str:
    """NVIDIA-A100-40GB-SXM4 and A100-SXM4-40GB are one."""
    words = name.upper().replace("-", " ").split()
    return " ".join(sorted(word for word in words if word != "NVIDIA"))


@lru_cache(maxsize=4096)
def restricted(model: GpuModel, entries: tuple[Entry, ...], there: Geometry = ()) -> GpuModel:
    """With the geometries that can exist, in the model's own profile names."""
    possible = [_named(model, entry.counts) for entry in entries if why_impossible(model, entry) is None]
    if there and not any(all(count <= dict(most).get(name, 0) for name, count in there) for most in possible):
        possible.append(there)
    most = {
        spec.name: max((dict(counts).get(spec.name, 0) for counts in possible), default=0) for spec in model.profiles
    }
    profiles = tuple(replace(spec, max_instances=min(spec.max_instances, most[spec.name])) for spec in model.profiles)
    return replace(model, geometries=tuple(sorted(set(possible))), profiles=profiles)


@lru_cache(maxsize=4096)
def why_impossible(model: GpuModel, entry: Entry) -> str | None:
    found = pack(replace(model, geometries=None), pinned=EMPTY, requested=dict(entry.counts))
    return found.reason if isinstance(found, DoesNotFit) else None


def _named(model: GpuModel, geometry: Geometry) -> Geometry:
    """In the model's names; profiles that it lacks are left out."""
    counts: dict[str, int] = {}
    for profile, count in geometry:
        spec = model.profile(profile)
        if spec is not None:
            counts[spec.name] = counts.get(spec.name, 0) + count
    return tuple(sorted(counts.items()))


def _geometry(model: GpuModel, layout: Layout) -> Geometry:
    return _named(model, tuple(layout.counts().items()))


def all_warnings(known: KnownGeometries, models: Iterable[GpuModel]) -> tuple[str, ...]:
    """Those of the file, and those that only these models, as NVML reports them, give rise to."""
    found = [*known.warnings, *(line for model in models for line in known.ignored(model))]
    return tuple(dict.fromkeys(found))

"""`knownMigGeometries` in nos' own file format -> which geometries planning may make, per GPU model.

In goes the decoded file: a list of groups of `models` and `allowedGeometries` (also below one of the keys under which
Helm and nos keep it), or nos' older mapping of a model to its list. Out come the geometries by model, and a sentence
for each entry that cannot exist: it is ignored, the rest counts. A file only ever takes away: what a card can be cut
into is known from NVML, or from the catalogue, so that a model that neither knows is used nowhere. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from partitioning.layouts import EMPTY, Layout
from partitioning.models import Geometry, GpuModel, known_models, model_for_product
from partitioning.packing import NoRoom, pack
from partitioning.profiles import MigProfile, ProfileError

_WRAPPERS = ("gpuPartitioner", "knownMigGeometries", "deployed", "groups")
"""Keys below which the list is found: Helm's values, and files that hold it beside other lists."""


class GeometriesError(ValueError):
    """The file is not of the form at all; the text says what would be right."""


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
    """By catalogue key; for names that the catalogue lacks by their words, as `_words` sorts them."""
    warnings: tuple[str, ...] = ()

    def restrict(self, model: GpuModel, there: Layout = EMPTY) -> GpuModel:
        """The model as it may be planned with: itself where the file does not name it.

        What stands on a GPU already may stand there, whoever made it: the scheduler gives it to pods, allowed or not.
        """
        entries = self._entries_of(model)
        return model if entries is None else _restricted(model, entries, _geometry(model, there))

    def ignored(self, model: GpuModel) -> tuple[str, ...]:
        """What cannot exist on this very model: for models that only NVML knows, known when it is first seen."""
        entries = self._entries_of(model) or ()
        problems = ((entry, _impossible(model, entry)) for entry in entries)
        return tuple(f"{entry} is ignored: {problem}" for entry, problem in problems if problem is not None)

    def _entries_of(self, model: GpuModel) -> tuple[Entry, ...] | None:
        if not model.mig_capable:
            return None
        found = self.entries.get(model.key)
        names = iter(model.names)
        while found is None and (name := next(names, None)) is not None:
            found = self.entries.get(_words(name))
        return found


def read_geometries(content: object) -> KnownGeometries:
    """Check decoded YAML; raises GeometriesError where nothing in it can be understood."""
    entries: dict[str, list[Entry]] = {}
    warnings: list[str] = []
    seen: dict[str, set[Geometry]] = {}
    for names, geometries in _groups(content, warnings):
        for name in names:
            model = model_named(name)
            key = model.key if model is not None else _words(name)
            if model is None and key not in entries:
                warnings.append(f"{name} is no model of the catalogue: used only on nodes whose NVML reports this name")
            known, list_of = seen.setdefault(key, set()), entries.setdefault(key, [])
            for geometry in geometries:
                entry = _entry(name, geometry, warnings)
                if entry is None or entry.counts in known:
                    continue
                known.add(entry.counts)
                problem = None if model is None else _impossible(model, entry)
                if problem is not None:
                    warnings.append(f"{entry} is ignored: {problem}")
                list_of.append(entry)
            if model is not None and not _restricted(model, tuple(list_of)).geometries:
                warnings.append(f"{name} has no geometry that can exist: GPUs of this model will not be cut")
    return KnownGeometries(
        entries={key: tuple(found) for key, found in entries.items()}, warnings=tuple(dict.fromkeys(warnings))
    )


def model_named(text: str) -> GpuModel | None:
    """The catalogued model of a product label, an NVML name, or a name of nos, whose words stand in other orders."""
    return model_for_product(text.replace(" ", "-")) or _models_by_words().get(_words(text))


@lru_cache(maxsize=1)
def _models_by_words() -> Mapping[str, GpuModel]:
    return {_words(name): model for model in reversed(known_models()) for name in model.names}


def _words(name: str) -> str:
    """NVIDIA-A100-40GB-SXM4 and A100-SXM4-40GB are one."""
    words = name.upper().replace("-", " ").split()
    return " ".join(sorted(word for word in words if word != "NVIDIA"))


# ----------------------------------------------------------------------------------------------- the file's form


def _groups(content: object, warnings: list[str]) -> Iterator[tuple[list[str], list[object]]]:
    """Model names with their geometries."""
    groups = _unwrapped(content)
    if isinstance(groups, Mapping):
        groups = [{"models": [name], "allowedGeometries": listed} for name, listed in groups.items()]
    if not isinstance(groups, list):
        raise GeometriesError(f"must be a list of groups of models and allowedGeometries, not {type(content).__name__}")
    for position, group in enumerate(groups):
        names, listed = _group(group)
        if names and listed is not None:
            yield names, listed
        else:
            warnings.append(f"group {position} is ignored: write models and allowedGeometries, both of them lists")


def _unwrapped(content: object) -> object:
    while isinstance(content, Mapping):
        key = next((key for key in _WRAPPERS if key in content), None)
        if key is None:
            break
        content = content[key]
    return content


def _group(group: object) -> tuple[list[str], list[object] | None]:
    if not isinstance(group, Mapping):
        return [], None
    names, listed = group.get("models"), group.get("allowedGeometries")
    return [str(name) for name in names] if isinstance(names, list) else [], listed if isinstance(
        listed, list
    ) else None


def _entry(name: str, geometry: object, warnings: list[str]) -> Entry | None:
    """None, and a warning, where it is no geometry."""
    if not isinstance(geometry, Mapping) or not geometry:
        warnings.append(f"{geometry!r} of {name} is ignored: write counts by profile, such as 1g.10gb: 7")
        return None
    for profile, count in geometry.items():
        problem = _no_count(profile, count)
        if problem is not None:
            warnings.append(f"{dict(geometry)!r} of {name} is ignored: {problem}")
            return None
    return Entry(name=name, counts=tuple(sorted((str(profile), int(count)) for profile, count in geometry.items())))


def _no_count(profile: object, count: object) -> str | None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return f"{count!r} x {profile} is no count: write a whole number from 1"
    try:
        MigProfile.parse(str(profile))
    except ProfileError as error:
        return str(error)
    return None


# ---------------------------------------------------------------------------------------------- on one model


@lru_cache(maxsize=4096)
def _restricted(model: GpuModel, entries: tuple[Entry, ...], there: Geometry = ()) -> GpuModel:
    """With the geometries that can exist, in the model's own profile names."""
    possible = [_named(model, entry.counts) for entry in entries if _impossible(model, entry) is None]
    if there and not any(all(count <= dict(most).get(name, 0) for name, count in there) for most in possible):
        possible.append(there)
    most = {
        spec.name: max((dict(counts).get(spec.name, 0) for counts in possible), default=0) for spec in model.profiles
    }
    profiles = tuple(replace(spec, max_instances=min(spec.max_instances, most[spec.name])) for spec in model.profiles)
    return replace(model, geometries=tuple(sorted(set(possible))), profiles=profiles)


@lru_cache(maxsize=4096)
def _impossible(model: GpuModel, entry: Entry) -> str | None:
    found = pack(replace(model, geometries=None), pinned=EMPTY, wanted=dict(entry.counts))
    return found.reason if isinstance(found, NoRoom) else None


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

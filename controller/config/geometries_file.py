"""Reads `knownMigGeometries`, in the file format of nos: the geometries that planning may make, per GPU model.

Takes the decoded file: a list of groups of `models` and `allowedGeometries` (also below one of the keys under which
Helm and nos keep it), or nos' older mapping of a model to its list. Returns the geometries by model, and a warning for
each entry that cannot exist: it is ignored, the others count. Pure; what a geometry means is in
`controller.model.known_geometries`.
"""

from collections.abc import Iterator, Mapping

from controller.model.known_geometries import Entry, KnownGeometries, model_named, restricted, why_impossible, words_of
from partitioning.models import Geometry
from partitioning.profiles import MigProfile, ProfileError

_WRAPPERS = ("gpuPartitioner", "knownMigGeometries", "deployed", "groups")
"""Keys below which the list is found: Helm's values, and files that hold it alongside other lists."""


class GeometriesError(ValueError):
    """The file has another form altogether; the text names the right one."""


def read_geometries(content: object) -> KnownGeometries:
    """Check decoded YAML; raises GeometriesError where nothing in it can be understood."""
    entries: dict[str, list[Entry]] = {}
    warnings: list[str] = []
    seen: dict[str, set[Geometry]] = {}
    for names, geometries in _groups(content, warnings):
        for name in names:
            model = model_named(name)
            key = model.key if model is not None else words_of(name)
            if model is None and key not in entries:
                warnings.append(f"{name} is no model of the catalogue: used only on nodes whose NVML reports this name")
            known, list_of = seen.setdefault(key, set()), entries.setdefault(key, [])
            for geometry in geometries:
                entry = _entry(name, geometry, warnings)
                if entry is None or entry.counts in known:
                    continue
                known.add(entry.counts)
                problem = None if model is None else why_impossible(model, entry)
                if problem is not None:
                    warnings.append(f"{entry} is ignored: {problem}")
                list_of.append(entry)
            if model is not None and not restricted(model, tuple(list_of)).geometries:
                warnings.append(f"{name} has no geometry that can exist: GPUs of this model will not be cut")
    return KnownGeometries(
        entries={key: tuple(found) for key, found in entries.items()}, warnings=tuple(dict.fromkeys(warnings))
    )


def _groups(content: object, warnings: list[str]) -> Iterator[tuple[list[str], list[object]]]:
    """Model names with their geometries."""
    groups = _unwrapped(content)
    if isinstance(groups, Mapping):
        groups = [{"models": [name], "allowedGeometries": listed} for name, listed in groups.items()]
    if not isinstance(groups, list):
        raise GeometriesError(f"must be a list of groups of models and allowedGeometries, not {type(content).__name__}")
    # Of another form altogether, such as HAMi's: to ignore it whole would allow what it was to forbid.
    if groups and not any(names and listed is not None for names, listed in map(_group, groups)):
        raise GeometriesError("has no group with models and allowedGeometries, both of them lists")
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

"""Reads a KubeSchedulerConfiguration: what each profile of the scheduler filters by.

Takes the text of the file that kube-scheduler itself reads (YAML or JSON) and returns frozen FilterProfiles by
schedulerName. Plugin sets are merged with the defaults of 1.36, and MultiPoint is expanded as the scheduler does it;
plugins and extenders that are not part of kube-scheduler are kept by name and count as passing. Reads one file at most;
a configuration that cannot be understood is one SchedulerConfigError, worded for its author.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.api.scheduling_rules import required_terms, spread_constraint
from controller.model.scheduling import DEFAULT_PROFILE, FILTERS, PREFILTERS, FilterProfile, SchedulerProfiles
from kube.yaml_text import NotYaml, read_yaml

GROUP = "kubescheduler.config.k8s.io/"
VERSIONS = tuple(GROUP + version for version in ("v1", "v1beta3", "v1beta2"))
"""The older two are read as v1 is: of what decides here, nothing was renamed since."""
KIND = "KubeSchedulerConfiguration"
ALL = "*"
OTHER_PLUGINS = frozenset(
    {
        "DefaultBinder",
        "DefaultPreemption",
        "GangScheduling",
        "ImageLocality",
        "NodeResourcesBalancedAllocation",
        "PrioritySort",
        "SchedulingGates",
    }
)
"""Plugins of kube-scheduler that filter nothing."""

SLICE_GROUPS = ("aliyun.com", "nvidia.com")
"""Where the resources come from that are planned here."""

Raw = Mapping[str, Any]
DEFAULT_PROFILES: SchedulerProfiles = {DEFAULT_PROFILE.scheduler_name: DEFAULT_PROFILE}


class SchedulerConfigError(ValueError):
    """The scheduler's configuration cannot be understood."""


def load_profiles(path: Path) -> SchedulerProfiles | None:
    """The profiles of a file; None where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SchedulerConfigError(f"{path}: cannot be read: {error}") from error
    try:
        return read_profiles(text)
    except SchedulerConfigError as error:
        raise SchedulerConfigError(f"{path}: {error}") from error


def read_profiles(text: str) -> SchedulerProfiles:
    """The profiles of a configuration, by schedulerName; those of an empty one are the default."""
    content = read_yaml(text)
    if isinstance(content, NotYaml):
        raise SchedulerConfigError(content.sentence)
    if content is None:
        return DEFAULT_PROFILES
    raw = _mapping(content, "the configuration")
    if raw.get("apiVersion") not in VERSIONS or raw.get("kind") != KIND:
        raise SchedulerConfigError(
            f"is {raw.get('apiVersion')} {raw.get('kind')}: a {KIND} of {GROUP}v1 is needed, as kube-scheduler reads it"
        )
    extenders = _extenders(raw)
    found: dict[str, FilterProfile] = {}
    for position, each in enumerate(_list(raw, "profiles") or [{}]):
        profile = _profile(_mapping(each, f"profiles[{position}]"), f"profiles[{position}]", extenders)
        if profile.scheduler_name in found:
            raise SchedulerConfigError(f"names two profiles {profile.scheduler_name}: each needs its own schedulerName")
        found[profile.scheduler_name] = profile
    return found


def profile_warnings(profiles: SchedulerProfiles) -> list[str]:
    """What a person should know of these profiles: one sentence each."""
    found = []
    for name, profile in sorted(profiles.items()):
        if profile.unknown:
            found.append(
                f"scheduler profile {name}: {', '.join(profile.unknown)} cannot be simulated and counts as passing"
            )
        ignored = sorted(
            name
            for name in profile.ignored_resources | profile.ignored_groups
            if name.partition("/")[0] in SLICE_GROUPS
        )
        if ignored:
            found.append(
                f"scheduler profile {name} ignores {', '.join(ignored)}: pods may be bound where no partition is free"
            )
    return found


def _profile(raw: Raw, where: str, extenders: "_Extenders") -> FilterProfile:
    plugins = _mapping(raw.get("plugins") or {}, f"{where}.plugins")
    multi_point = _merged(MULTI_POINT, _set(plugins, "multiPoint", where))
    filters = _expanded(multi_point, _set(plugins, "filter", where), FILTERS)
    prefilters = _expanded(multi_point, _set(plugins, "preFilter", where), PREFILTERS)
    known = {*FILTERS, *OTHER_PLUGINS}
    named = (*multi_point, *_set(plugins, "filter", where).enabled, *_set(plugins, "preFilter", where).enabled)
    profile = FilterProfile(
        scheduler_name=str(raw.get("schedulerName") or DEFAULT_PROFILE.scheduler_name),
        filters=tuple(name for name in filters if name in FILTERS),
        prefilters=tuple(name for name in prefilters if name in PREFILTERS),
        unknown=(*sorted({f"plugin {name}" for name in named if name not in known}), *extenders.names),
    )
    try:
        profile = _with_arguments(profile, _arguments(raw, where))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SchedulerConfigError(f"{where}.pluginConfig is malformed: {what}") from error
    if extenders.ignored:
        # Theirs take the place of the plugin's own, as in the scheduler.
        profile = replace(profile, ignored_resources=extenders.ignored)
    return profile


def _arguments(raw: Raw, where: str) -> dict[str, Raw]:
    return {
        str(entry.get("name")): _mapping(entry.get("args") or {}, f"{where}.pluginConfig of {entry.get('name')}")
        for position, each in enumerate(_list(raw, "pluginConfig"))
        for entry in (_mapping(each, f"{where}.pluginConfig[{position}]"),)
    }


def _with_arguments(profile: FilterProfile, arguments: Mapping[str, Raw]) -> FilterProfile:
    """Of all arguments only these decide where a pod fits."""
    affinity = arguments.get("NodeAffinity", {})
    fit = arguments.get("NodeResourcesFit", {})
    spread = arguments.get("PodTopologySpread", {})
    constraints = _list(spread, "defaultConstraints") if spread.get("defaultingType") == "List" else ()
    return replace(
        profile,
        added_affinity=required_terms(affinity.get("addedAffinity")),
        ignored_resources=frozenset(_list(fit, "ignoredResources")),
        ignored_groups=frozenset(_list(fit, "ignoredResourceGroups")),
        default_spread=tuple(
            constraint for entry in constraints for constraint in (spread_constraint(entry, {}),) if constraint.hard
        ),
    )


@dataclass(frozen=True, slots=True)
class _PluginSet:
    """One extension point of a profile."""

    enabled: tuple[str, ...] = ()
    disabled: frozenset[str] = frozenset()


MULTI_POINT = FILTERS
"""What is enabled everywhere by default; plugins that filter nothing are left out."""


def _set(plugins: Raw, point: str, where: str) -> _PluginSet:
    raw = _mapping(plugins.get(point) or {}, f"{where}.plugins.{point}")
    return _PluginSet(
        enabled=tuple(dict.fromkeys(_names(raw, "enabled", f"{where}.plugins.{point}"))),
        disabled=frozenset(_names(raw, "disabled", f"{where}.plugins.{point}")),
    )


def _merged(default: Iterable[str], custom: _PluginSet) -> list[str]:
    """The default plugins that are not disabled, in their own order, then those that are added."""
    kept = [] if ALL in custom.disabled else [name for name in default if name not in custom.disabled]
    return [*kept, *(name for name in custom.enabled if name not in kept)]


def _expanded(multi_point: Iterable[str], own: _PluginSet, implementing: Iterable[str]) -> list[str]:
    """The plugins of one extension point, in the order in which they run.

    First those of MultiPoint that the point names itself, then the other ones of MultiPoint, then the point's others.
    """
    if ALL in own.disabled:
        return list(own.enabled)
    capable = set(implementing)
    multi = [name for name in multi_point if name in capable and name not in own.disabled]
    overriding = [name for name in own.enabled if name in multi]
    inherited = [name for name in multi if name not in own.enabled]
    return [*overriding, *inherited, *(name for name in own.enabled if name not in multi)]


@dataclass(frozen=True, slots=True)
class _Extenders:
    names: tuple[str, ...]
    ignored: frozenset[str]


def _extenders(raw: Raw) -> _Extenders:
    """Those that filter, by their address, and the resources that they take off the scheduler's hands."""
    names, ignored = [], set()
    for position, each in enumerate(_list(raw, "extenders")):
        extender = _mapping(each, f"extenders[{position}]")
        if extender.get("filterVerb"):
            names.append(f"extender {extender.get('urlPrefix')}")
        for managed in _list(extender, "managedResources"):
            entry = _mapping(managed, f"extenders[{position}].managedResources")
            if entry.get("ignoredByScheduler"):
                ignored.add(str(entry.get("name")))
    return _Extenders(tuple(names), frozenset(ignored))


def _names(raw: Raw, field: str, where: str) -> list[str]:
    names = []
    for position, entry in enumerate(_list(raw, field, where)):
        name = _mapping(entry, f"{where}.{field}[{position}]").get("name")
        if not name or not isinstance(name, str):
            raise SchedulerConfigError(f"{where}.{field}[{position}].name is missing: name a plugin, or * for all")
        names.append(name)
    return names


def _mapping(value: object, where: str) -> Raw:
    if not isinstance(value, Mapping):
        raise SchedulerConfigError(f"{where} must be a mapping, not {type(value).__name__}")
    return value


def _list(raw: Raw, field: str, where: str = "") -> list[Any]:
    value = raw.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        place = f"{where}.{field}" if where else field
        raise SchedulerConfigError(f"{place} must be a list, not {type(value).__name__}")
    return value

"""KubeSchedulerConfiguration: which filters a profile runs, in which order, with which arguments."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.config.scheduler_config import (
    DEFAULT_PROFILES,
    SchedulerConfigError,
    load_profiles,
    profile_warnings,
    read_profiles,
)
from controller.model.scheduling import (
    FILTERS,
    PREFILTERS,
    FilterProfile,
    NodeSelectorTerm,
    Requirement,
    SpreadConstraint,
)

Json = dict[str, Any]


def configuration(*profiles: Json, **more: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **({"profiles": list(profiles)} if profiles else {}),
            **more,
        }
    )


def the_profile(**raw: Any) -> FilterProfile:
    (profile,) = read_profiles(configuration(raw)).values()
    return profile


def named(*names: str) -> list[Json]:
    return [{"name": name} for name in names]


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in FILTERS if name not in names)


@pytest.mark.parametrize("text", ["", "---\n", configuration(), configuration({})])
def test_the_default(text: str) -> None:
    assert read_profiles(text) == DEFAULT_PROFILES == {"default-scheduler": FilterProfile()}


@pytest.mark.parametrize(
    ("plugins", "filters"),
    [
        ({}, FILTERS),
        ({"filter": {"disabled": named("TaintToleration")}}, without("TaintToleration")),
        ({"multiPoint": {"disabled": named("TaintToleration")}}, without("TaintToleration")),
        # Whatever the point itself names runs first.
        ({"filter": {"enabled": named("NodePorts")}}, ("NodePorts", *without("NodePorts"))),
        (
            {"filter": {"enabled": named("NodePorts", "NodeName")}},
            ("NodePorts", "NodeName", *without("NodePorts", "NodeName")),
        ),
        (
            {"filter": {"disabled": named("*"), "enabled": named("NodeResourcesFit", "TaintToleration")}},
            ("NodeResourcesFit", "TaintToleration"),
        ),
        ({"filter": {"disabled": named("*")}}, ()),
        (
            {"multiPoint": {"disabled": named("*"), "enabled": named("NodeResourcesFit", "NodePorts")}},
            ("NodeResourcesFit", "NodePorts"),
        ),
        # Switched off everywhere, and on again for this point: it comes last.
        (
            {"multiPoint": {"disabled": named("NodePorts")}, "filter": {"enabled": named("NodePorts")}},
            (*without("NodePorts"), "NodePorts"),
        ),
        # Named again, a default plugin keeps its place; other points do not matter.
        ({"multiPoint": {"enabled": named("NodePorts", "ImageLocality")}}, FILTERS),
        ({"score": {"disabled": named("*")}, "preFilter": {"disabled": named("NodePorts")}}, FILTERS),
    ],
)
def test_which_filters_run_in_which_order(plugins: Json, filters: tuple[str, ...]) -> None:
    assert the_profile(plugins=plugins).filters == filters


@pytest.mark.parametrize(
    ("plugins", "prefilters"),
    [
        ({}, PREFILTERS),
        ({"filter": {"disabled": named("NodePorts")}}, PREFILTERS),
        ({"preFilter": {"disabled": named("NodePorts")}}, tuple(p for p in PREFILTERS if p != "NodePorts")),
        ({"multiPoint": {"disabled": named("NodePorts")}}, tuple(p for p in PREFILTERS if p != "NodePorts")),
        ({"preFilter": {"disabled": named("*")}}, ()),
    ],
)
def test_which_prefilters_run(plugins: Json, prefilters: tuple[str, ...]) -> None:
    assert the_profile(plugins=plugins).prefilters == prefilters


def test_arguments() -> None:
    added = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
        }
    }
    hard = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3}
    profile = the_profile(
        pluginConfig=[
            {"name": "NodeAffinity", "args": {"kind": "NodeAffinityArgs", "addedAffinity": added}},
            {"name": "NodeResourcesFit", "args": {"ignoredResources": ["a.b/c"], "ignoredResourceGroups": ["x.y"]}},
            {
                "name": "PodTopologySpread",
                "args": {
                    "defaultingType": "List",
                    "defaultConstraints": [hard, hard | {"whenUnsatisfiable": "ScheduleAnyway"}],
                },
            },
            {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 3}},
        ]
    )

    assert profile == FilterProfile(
        added_affinity=(NodeSelectorTerm(labels=(Requirement(key="pool", operator="Exists"),)),),
        ignored_resources=frozenset({"a.b/c"}),
        ignored_groups=frozenset({"x.y"}),
        default_spread=(SpreadConstraint(topology_key="zone", max_skew=2, min_domains=3),),
    )


def test_the_systems_own_default_constraints_never_filter() -> None:
    args = {"defaultingType": "System"}

    assert the_profile(pluginConfig=[{"name": "PodTopologySpread", "args": args}]).default_spread == ()


def test_several_profiles() -> None:
    found = read_profiles(
        configuration({}, {"schedulerName": "batch", "plugins": {"filter": {"disabled": named("NodePorts")}}})
    )

    assert sorted(found) == ["batch", "default-scheduler"]
    assert found["batch"].filters == without("NodePorts")
    assert found["default-scheduler"].filters == FILTERS


def test_what_cannot_be_simulated_is_kept_by_name_and_logged_once() -> None:
    found = read_profiles(
        configuration(
            {
                "plugins": {
                    "multiPoint": {"enabled": named("Coscheduling", "NodePorts")},
                    "filter": {"enabled": named("Mine")},
                }
            },
            extenders=[
                {"urlPrefix": "http://gpu:80", "filterVerb": "filter"},
                {"urlPrefix": "http://score:80", "prioritizeVerb": "score"},
            ],
        )
    )

    (profile,) = found.values()
    assert profile.filters == FILTERS
    assert profile.unknown == ("plugin Coscheduling", "plugin Mine", "extender http://gpu:80")
    assert profile_warnings(found) == [
        "scheduler profile default-scheduler: plugin Coscheduling, plugin Mine, extender http://gpu:80 "
        "cannot be simulated and counts as passing"
    ]


def test_resources_that_an_extender_manages_are_left_to_it() -> None:
    managed = [{"name": "nvidia.com/gpu-10gb", "ignoredByScheduler": True}, {"name": "a.b/c"}]
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["x.y/z"]}}
    found = read_profiles(configuration({"pluginConfig": [fit]}, extenders=[{"managedResources": managed}]))

    assert found["default-scheduler"].ignored_resources == {"nvidia.com/gpu-10gb"}
    assert profile_warnings(found) == [
        "scheduler profile default-scheduler ignores nvidia.com/gpu-10gb: pods may be bound where no partition is free"
    ]


def test_a_default_profile_needs_no_warning() -> None:
    assert profile_warnings(DEFAULT_PROFILES) == []
    assert profile_warnings({"x": FilterProfile(ignored_groups=frozenset({"example.com"}))}) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid YAML"),
        ("[]", "the configuration must be a mapping, not list"),
        ("{kind: Policy, apiVersion: v1}", "is v1 Policy: a KubeSchedulerConfiguration"),
        (configuration(profiles={}), "profiles must be a list, not dict"),
        (configuration({"plugins": []}, {"plugins": {}}), "two profiles default-scheduler"),
        (configuration({"plugins": {"filter": "x"}}), "profiles[0].plugins.filter must be a mapping, not str"),
        (configuration({"plugins": {"filter": {"enabled": ["x"]}}}), "filter.enabled[0] must be a mapping, not str"),
        (configuration({"plugins": {"filter": {"enabled": "x"}}}), "plugins.filter.enabled must be a list, not str"),
        (
            configuration({"plugins": {"preFilter": {"disabled": [{"weight": 1}]}}}),
            "profiles[0].plugins.preFilter.disabled[0].name is missing",
        ),
        (
            configuration(
                {
                    "pluginConfig": [
                        {
                            "name": "NodeAffinity",
                            "args": {
                                "addedAffinity": {
                                    "requiredDuringSchedulingIgnoredDuringExecution": {
                                        "nodeSelectorTerms": [{"matchExpressions": [{}]}]
                                    }
                                }
                            },
                        }
                    ]
                }
            ),
            "profiles[0].pluginConfig is malformed",
        ),
        (configuration({"pluginConfig": [{"name": "NodeAffinity", "args": 3}]}), "must be a mapping, not int"),
        (
            configuration({"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": "a.b/c"}}]}),
            "ignoredResources must be a list, not str",
        ),
        (
            configuration(
                {
                    "pluginConfig": [
                        {
                            "name": "PodTopologySpread",
                            "args": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1}]},
                        }
                    ]
                }
            ),
            "profiles[0].pluginConfig is malformed: 'topologyKey' is missing",
        ),
        (
            "{kind: KubeSchedulerConfiguration, apiVersion: kubescheduler.config.k8s.io/v9}",
            "is kubescheduler.config.k8s.io/v9 KubeSchedulerConfiguration: a KubeSchedulerConfiguration of",
        ),
    ],
)
def test_a_configuration_that_cannot_be_understood(text: str, words: str) -> None:
    with pytest.raises(SchedulerConfigError) as caught:
        read_profiles(text)
    assert words in str(caught.value)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    assert load_profiles(path) is None

    path.write_text(configuration({"schedulerName": "mine"}))
    assert load_profiles(path) == {"mine": FilterProfile(scheduler_name="mine")}

    path.write_text("{")
    with pytest.raises(SchedulerConfigError, match=r"scheduler\.yaml: is not valid YAML"):
        load_profiles(path)
    with pytest.raises(SchedulerConfigError, match="cannot be read"):
        load_profiles(tmp_path)

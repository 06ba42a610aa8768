"""Topology spread: which pods are counted where, and when the skew is too large."""

from collections.abc import Mapping
from typing import Any

import pytest

from controller.model.scheduling import (
    FilterProfile,
    Labels,
    LabelSelector,
    Requirement,
    SchedulingContext,
    SpreadConstraint,
)
from tests.builders.objects import Json
from tests.controller.simulator.words import HOST, REQUIRED, ZONE, a_node, a_pod, fits, spread, state, verdicts

WEB = {"app": "web"}
NODES = ("a1", "a2", "b1", "c1")


def three_zones() -> list[Any]:
    return [a_node(name, zone=name[0]) for name in NODES]


def spreading(*constraints: Json, **spec: Any) -> Any:
    return a_pod("p", WEB, spec={"topologySpreadConstraints": list(constraints), **spec})


def on(*nodes: str, **more: Any) -> list[Any]:
    return [a_pod(f"e{number}", WEB, on=node, **more) for number, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("there", "constraint", "expected"),
    [
        ([], spread(), ["a1", "a2", "b1", "c1"]),
        (["a1"], spread(), ["b1", "c1"]),
        (["a1", "b1"], spread(), ["c1"]),
        (["a1", "b1", "c1"], spread(), ["a1", "a2", "b1", "c1"]),
        (["a1", "a2"], spread(skew=2), ["b1", "c1"]),
        (["a1"], spread(skew=2), ["a1", "a2", "b1", "c1"]),
        (["a1"], spread(HOST), ["a2", "b1", "c1"]),
        (["a1"], spread(hard=False), ["a1", "a2", "b1", "c1"]),
        # Pods that the selector does not mean are not counted, and then the pod itself is not either.
        (["a1", "a1"], spread(app="other"), ["a1", "a2", "b1", "c1"]),
        # Fewer domains than requested: the least count is taken as 0.
        (["a1", "b1", "c1"], spread(minDomains=3), ["a1", "a2", "b1", "c1"]),
        (["a1", "b1", "c1"], spread(minDomains=4), []),
        # An empty selector counts no pod but the pod itself, no selector not even that.
        (["a1", "a1"], {**spread(), "labelSelector": {}}, ["a1", "a2", "b1", "c1"]),
        (["a1", "a1"], {k: v for k, v in spread().items() if k != "labelSelector"}, ["a1", "a2", "b1", "c1"]),
    ],
)
def test_the_skew(there: list[str], constraint: Json, expected: list[str]) -> None:
    assert fits(state(three_zones(), on(*there)), spreading(constraint), *NODES) == expected


def test_the_message_names_what_is_wrong() -> None:
    cluster = state([*three_zones(), a_node("x")], on("a1"))

    assert verdicts(cluster, spreading(spread()), "a1", "x", "b1") == [
        "PodTopologySpread: node(s) didn't match pod topology spread constraints",
        "PodTopologySpread: node(s) didn't match pod topology spread constraints (missing required label)",
        "",
    ]


def test_all_constraints_must_hold_and_only_nodes_with_all_keys_count() -> None:
    nodes = [*three_zones(), a_node("d1", zone="d", rack="r"), a_node("d2", zone="d")]
    both = spreading(spread(), spread("rack", skew=9))

    # Only d1 has both keys, so zone d is the only domain, and its least count its own.
    assert fits(state(nodes, on("a1", "d1")), both, "a1", "d1", "d2") == ["d1"]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (on("a1", namespace="other"), ["a1", "a2", "b1", "c1"]),
        (on("a1", deletionTimestamp="2026-01-01T00:00:00Z"), ["a1", "a2", "b1", "c1"]),
        (on("gone"), ["a1", "a2", "b1", "c1"]),
        (on("a2"), ["b1", "c1"]),
    ],
)
def test_which_pods_are_counted(there: list[Any], expected: list[str]) -> None:
    assert fits(state(three_zones(), there), spreading(spread()), *NODES) == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        # Zone c is not the pod's to use: by default it is no domain, and the least count is that of a and b.
        ({}, ["a1", "b1"]),
        ({"nodeAffinityPolicy": "Honor"}, ["a1", "b1"]),
        ({"nodeAffinityPolicy": "Ignore"}, []),
    ],
)
def test_the_nodes_that_the_pod_selects(policies: Json, expected: list[str]) -> None:
    affine = {
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]
            }
        }
    }
    pod = spreading(spread(**policies), affinity=affine)

    assert fits(state(three_zones(), on("a1", "b1")), pod, "a1", "b1", "c1") == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [({}, []), ({"nodeTaintsPolicy": "Ignore"}, []), ({"nodeTaintsPolicy": "Honor"}, ["a1", "b1"])],
)
def test_the_nodes_that_the_pod_tolerates(policies: Json, expected: list[str]) -> None:
    tainted = a_node("c1", zone="c", taints=[{"key": "k", "effect": "NoSchedule"}])
    nodes = [a_node("a1", zone="a"), a_node("b1", zone="b"), tainted]

    assert fits(state(nodes, on("a1", "b1")), spreading(spread(**policies)), "a1", "b1", "c1") == expected


def test_match_label_keys_narrow_the_selector_to_pods_like_this_one() -> None:
    old = [a_pod("e", {**WEB, "hash": "1"}, on="a1")]
    new = a_pod(
        "p", {**WEB, "hash": "2"}, spec={"topologySpreadConstraints": [spread(matchLabelKeys=["hash", "none"])]}
    )

    assert fits(state(three_zones(), old), new, *NODES) == ["a1", "a2", "b1", "c1"]
    assert fits(state(three_zones(), old), spreading(spread(matchLabelKeys=["none"])), *NODES) == ["b1", "c1"]


BY_ZONE = FilterProfile(default_spread=(SpreadConstraint(topology_key=ZONE),))


def selected_by(services: Mapping[tuple[str, str], Labels]) -> SchedulingContext:
    return SchedulingContext(services=services, workloads={})


def test_default_constraints_spread_what_a_service_selects() -> None:
    pod, there = a_pod("p", WEB), on("a1")
    service: dict[tuple[str, str], Labels] = {("team", "s"): (("app", "web"),), ("other", "s"): (("app", "none"),)}

    assert fits(state(three_zones(), there, context=selected_by(service), profile=BY_ZONE), pod, *NODES) == [
        "b1",
        "c1",
    ]
    assert fits(state(three_zones(), there, context=selected_by({}), profile=BY_ZONE), pod, *NODES) == list(NODES)
    assert fits(state(three_zones(), there, context=selected_by(service)), pod, *NODES) == list(NODES)


def test_default_constraints_are_not_for_pods_with_their_own() -> None:
    soft = spreading(spread(hard=False))
    service = selected_by({("team", "s"): (("app", "web"),)})

    assert fits(state(three_zones(), on("a1"), context=service, profile=BY_ZONE), soft, *NODES) == list(NODES)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_default_constraints_spread_what_the_owner_selects(kind: str) -> None:
    owned = a_pod("p", WEB, ownerReferences=[{"kind": kind, "name": "w", "controller": True}])
    selector = LabelSelector(requirements=(Requirement(key="app", operator="In", values=("web",)),))
    context = SchedulingContext(services={}, workloads={(kind, "team", "w"): selector})

    assert fits(state(three_zones(), on("a1"), context=context, profile=BY_ZONE), owned, *NODES) == ["b1", "c1"]
    assert fits(state(three_zones(), on("a1"), context=context, profile=BY_ZONE), a_pod("p", WEB), *NODES) == list(
        NODES
    )


def test_what_selects_the_pod_may_be_unknown() -> None:
    assert state(three_zones(), profile=BY_ZONE).prefilter(a_pod("p", WEB)).unknown == (
        "what selects the pod, for the profile's default spread constraints",
    )

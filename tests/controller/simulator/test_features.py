"""Declared features (NodeDeclaredFeatures of 1.36), and label selectors that the scheduler cannot read."""

from dataclasses import replace
from typing import Any

import pytest

from controller.model.views import NodeView, PodView
from controller.planner.inventory.node_groups import NodeGroups
from controller.simulator.cluster import ClusterState
from controller.simulator.filters import filter_node
from controller.simulator.verdicts import DoesNotFit
from tests.controller.simulator.words import REQUIRED, a_node, a_pod

RESTARTS = "RestartAllContainersOnContainerExits"
HOST_USERS = "UserNamespacesHostNetworkSupport"
RULES = {"containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}


def declaring(name: str, *features: str) -> NodeView:
    return replace(a_node(name), features=features)


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (RULES, (RESTARTS,)),
        ({"initContainers": RULES["containers"]}, (RESTARTS,)),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        ({"hostNetwork": True, "hostUsers": False}, (HOST_USERS,)),
        ({"hostNetwork": True, "hostUsers": True}, ()),
        ({"hostNetwork": True}, ()),
        ({"hostUsers": False}, ()),
        ({**RULES, "hostNetwork": True, "hostUsers": False}, (RESTARTS, HOST_USERS)),
    ],
)
def test_what_a_pod_needs_of_its_node(spec: dict[str, Any], needed: tuple[str, ...]) -> None:
    pod = a_pod("p", spec=spec)

    assert pod.features == needed
    assert not isinstance(filter_node(pod, declaring("all", RESTARTS, HOST_USERS)), DoesNotFit)
    refusal = filter_node(pod, declaring("none", "Other"))
    assert isinstance(refusal, DoesNotFit) == bool(needed)
    if isinstance(refusal, DoesNotFit):
        assert (refusal.plugin, refusal.message) == (
            "NodeDeclaredFeatures",
            "node(s) didn't match Pod's required features",
        )


def test_nodes_are_distinguished_by_what_they_declare() -> None:
    groups = NodeGroups([declaring("a"), declaring("b", RESTARTS)], [a_pod("p"), a_pod("q", spec=RULES)])

    assert groups.allowed(a_pod("q", spec=RULES)) == (groups.group_of[1],)
    assert groups.allowed(a_pod("p")) == tuple(sorted(groups.group_of))
    assert groups.group_of[0] != groups.group_of[1]


def selecting(kind: str, selector: dict[str, Any]) -> PodView:
    term = {"topologyKey": "zone", "labelSelector": selector}
    if kind == "spread":
        constraint = {**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        return a_pod("p", spec={"topologySpreadConstraints": [constraint]})
    return a_pod("p", spec={"affinity": {kind: {REQUIRED: [term]}}})


@pytest.mark.parametrize(
    ("kind", "plugin"),
    [
        ("podAffinity", "InterPodAffinity"),
        ("podAntiAffinity", "InterPodAffinity"),
        ("spread", "PodTopologySpread"),
    ],
)
@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "-5"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["no value!"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["5"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In"}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]},
    ],
)
def test_a_pod_with_an_unreadable_selector_fits_nowhere(kind: str, plugin: str, selector: dict[str, Any]) -> None:
    state = ClusterState([a_node("a", zone="z")])

    refusal = state.why_not(selecting(kind, selector), "a")

    assert refusal is not None
    assert (refusal.plugin, refusal.message) == (plugin, "pod has a label selector that cannot be read")
    assert state.why_not(selecting("podAntiAffinity", {"matchLabels": {"app": "5"}}), "a") is None

"""Pods whose volumes are bound are pods like all others: each goes to nodes that reach its volumes, and none waits."""

from dataclasses import replace

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.scheduling import (
    ClaimUse,
    ClaimView,
    NodeSelectorTerm,
    Requirement,
    SchedulingContext,
    VolumeView,
)
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlanView, PodView
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, replaced, server
from tests.controller.planner.checker import check

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def at(key: str, *values: str) -> VolumeView:
    return VolumeView(node_affinity=(NodeSelectorTerm(labels=(Requirement(key=key, operator="In", values=values),)),))


def zoned(label: str, *values: str) -> VolumeView:
    return VolumeView(zones=((label, values),))


def in_zone(name: str, zone: str) -> tuple[NodeView, PlanView]:
    return server(name, mig(0), labels={HOST: name, ZONE: zone} if zone else {HOST: name})


def using(name: str) -> PodView:
    return replaced(pod(name, "7g.40gb"), volumes=(ClaimUse(claim=name),))


def having(pods: list[PodView], volumes: list[VolumeView], *servers: tuple[NodeView, PlanView]) -> Snapshot:
    """Each pod has a claim of its name, bound to the volume of the same position."""
    context = SchedulingContext(
        claims={(one.namespace, one.name): ClaimView(volume=one.name, bound=True) for one in pods},
        volumes={one.name: volume for one, volume in zip(pods, volumes, strict=True)},
        storage_classes={},
        namespaces={},
    )
    return replace(cluster(*servers, pending=pods), context=context)


@pytest.mark.parametrize(
    ("volume", "nodes"),
    [
        (VolumeView(), {"a1", "b1", "x1"}),
        (at(ZONE, "b"), {"b1"}),
        (at(HOST, "a1", "x1"), {"a1", "x1"}),
        (zoned(ZONE, "b"), {"b1", "x1"}),
        (zoned(OLD_ZONE, "a", "b"), {"a1", "b1", "x1"}),
        (zoned(ZONE, "c"), {"x1"}),
        (at(ZONE, "c"), set()),
    ],
)
def test_a_pod_goes_to_every_node_that_reaches_its_volume(volume: VolumeView, nodes: set[str]) -> None:
    """One pod per GPU: as many as there are nodes within reach, node x1 having no zone."""
    pods = [using(f"p{number}") for number in range(3)]
    snapshot = having(pods, [volume] * 3, in_zone("a1", "a"), in_zone("b1", "b"), in_zone("x1", ""))
    result = plan(snapshot)

    check(snapshot, result)
    assert {one.node for one in result.placed} == nodes


def test_all_volumes_of_a_pod_must_be_within_reach() -> None:
    both = replaced(pod("p", "7g.40gb"), volumes=(ClaimUse(claim="one"), ClaimUse(claim="two")))
    claims = {("team", name): ClaimView(volume=name, bound=True) for name in ("one", "two")}
    volumes = {"one": at(ZONE, "a", "b"), "two": zoned(ZONE, "b", "c")}
    context = SchedulingContext(claims=claims, volumes=volumes, storage_classes={}, namespaces={})
    servers = (in_zone(f"{zone}1", zone) for zone in "abc")

    assert [one.node for one in plan(replace(cluster(*servers, pending=[both]), context=context)).placed] == ["b1"]


def test_a_volume_out_of_reach_is_the_reason() -> None:
    snapshot = having([using("p")], [at(ZONE, "c")], in_zone("a1", "a"), in_zone("b1", "b"))
    ((reason, message),) = [(one.reason, one.message) for one in plan(snapshot).unplaced]

    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert message == ("All 2 suitable nodes didn't match PersistentVolume's node affinity. Change the pod's volumes.")


def test_a_claim_for_one_pod_only_is_used_by_one_of_two() -> None:
    pods = [replaced(pod(name, "1g.5gb"), volumes=(ClaimUse(claim="c"),)) for name in ("p", "q")]
    claims = {("team", "c"): ClaimView(volume="v", bound=True, one_pod_only=True)}
    context = SchedulingContext(claims=claims, volumes={"v": VolumeView()}, storage_classes={}, namespaces={})

    assert len(plan(replace(cluster(in_zone("a1", "a"), pending=pods), context=context)).placed) == 1

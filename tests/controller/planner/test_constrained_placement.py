"""Pods whose place depends on other pods, on volumes or on their scheduler's profile."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.scheduling import (
    FILTERS,
    ClaimUse,
    ClaimView,
    FilterProfile,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Requirement,
    SchedulingContext,
    SpreadConstraint,
    StorageClassView,
    VolumeView,
)
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlannerOptions, PlanView, PodView
from controller.planning import plan
from controller.simulator.cluster import ClusterState
from tests.controller.planner.builders import cluster, mig, mps, node, plan_of, pod, replaced
from tests.drawn import examples

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
PRODUCT = "nvidia.com/gpu.product"
SLICE = "1g.5gb"
WEB = LabelSelector(requirements=(Requirement(key="app", operator="In", values=("web",)),))
BY_ZONE = SpreadConstraint(topology_key=ZONE, selector=WEB)


def server(name: str, zone: str = "", gpus: int = 1, **labels: str) -> tuple[NodeView, PlanView]:
    found = [mig(index) for index in range(gpus)]
    all_labels = {HOST: name, **({ZONE: zone} if zone else {}), **labels}
    return node(name, gpus=found, labels=all_labels), plan_of(name, gpus=found)


def web(name: str = "p", **fields: Any) -> PodView:
    return replaced(pod(name, SLICE), labels=(("app", "web"),), **fields)


def several(count: int, **fields: Any) -> list[PodView]:
    return [web(f"p{number}", **fields) for number in range(count)]


def near(key: str = ZONE) -> tuple[PodAffinityTerm, ...]:
    return (PodAffinityTerm(topology_key=key, selector=WEB, namespaces=("team",)),)


def where(result: PlanningResult) -> dict[str, str]:
    return {placed.key[1]: placed.node for placed in result.placed}


def answers(result: PlanningResult) -> dict[str, tuple[UnplacedReason, str]]:
    return {one.key[1]: (one.reason, one.full) for one in result.unplaced}


def test_replicas_are_spread_as_the_scheduler_will() -> None:
    servers = [server("a1", "a", gpus=4), server("b1", "b"), server("c1", "c")]
    result = plan(cluster(*servers, pending=several(9, spread=(BY_ZONE,))))

    assert Counter(where(result).values()) == {"a1": 3, "b1": 3, "c1": 3}


def test_running_replicas_count_wherever_they_are() -> None:
    snapshot = cluster(server("a1", "a"), server("b1", "b"), pending=several(1, spread=(BY_ZONE,)))
    elsewhere = replaced(pod("e", node_name="cpu"), labels=(("app", "web"),))
    other = node("cpu", labels={ZONE: "a"}, partitioning=None)
    result = plan(replace(snapshot, other_nodes=(other,), other_pods=(elsewhere,)))

    assert where(result) == {"p0": "b1"}


def test_two_that_avoid_each_other_get_a_node_each_and_the_third_gets_a_reason() -> None:
    result = plan(cluster(server("a1"), server("b1"), pending=several(3, anti_affinity=near(HOST))))

    assert sorted(where(result).values()) == ["a1", "b1"]
    (reason, message) = answers(result)["p2"]
    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert "2 node(s) didn't match pod anti-affinity rules" in message


def test_pods_go_where_the_pods_of_their_affinity_are_planned() -> None:
    leader = replaced(pod("a-leader", "7g.40gb"), labels=(("app", "web"),))
    follower = replaced(pod("b-follower", SLICE), affinity=near())
    result = plan(cluster(server("a1", "a"), server("b1", "b"), server("b2", "b"), pending=[leader, follower]))

    zones = {"a1": "a", "b1": "b", "b2": "b"}
    placed = where(result)
    # The leader fills its GPU, so only zone b has room for both.
    assert {name: zones[found] for name, found in placed.items()} in (
        {"a-leader": "b", "b-follower": "b"},
        {"a-leader": "a"},
    )


def test_running_pods_with_anti_affinity_keep_plain_pods_away() -> None:
    shy = replaced(pod("e", node_name="a1"), anti_affinity=near(HOST))
    result = plan(cluster(server("a1"), server("b1"), pods=[shy], pending=[web(), pod("q", SLICE)]))

    assert where(result)["p"] == "b1"
    assert "q" in where(result)


def test_reservations_are_kept_only_where_the_filters_allow_it() -> None:
    ready = [mig(0, idle=[(SLICE, 0)])]
    labels = {HOST: "a1"}
    first = (node("a1", gpus=ready, labels=labels), plan_of("a1", gpus=ready))
    shy = replaced(pod("e", node_name="a1"), anti_affinity=near(HOST))
    one = web()

    snapshot = replace(cluster(first, server("b1"), pending=[one]), reservations={one.uid: "a1"})
    assert where(plan(snapshot)) == {"p": "a1"}
    refused = replace(cluster(first, server("b1"), pods=[shy], pending=[one]), reservations={one.uid: "a1"})
    assert where(plan(refused)) == {"p": "b1"}


def test_one_that_was_not_tried_yet_takes_what_is_there_and_is_counted() -> None:
    ready = [mig(0, idle=[(SLICE, 0)])]
    first = (node("a1", gpus=ready, labels={HOST: "a1", ZONE: "a"}), plan_of("a1", gpus=ready))
    new = web("new", unschedulable=False, spread=(BY_ZONE,))
    result = plan(cluster(first, server("b1", "b"), pending=[new, web("old", spread=(BY_ZONE,), created=1)]))

    assert where(result) == {"old": "b1"}


IN_B = VolumeView(node_affinity=(NodeSelectorTerm(labels=(Requirement(key=ZONE, operator="In", values=("b",)),)),))


def volumes(claim: ClaimView | None) -> SchedulingContext:
    return SchedulingContext(
        claims={("team", "c"): claim} if claim is not None else {},
        volumes={"v": IN_B},
        storage_classes={"late": StorageClassView(delayed=True, provisioner="disks")},
    )


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (volumes(ClaimView(volume="v", bound=True)), {"p": "b1"}),
        (volumes(ClaimView(storage_class="late", selected_node="b1")), {"p": "b1"}),
        (volumes(ClaimView(storage_class="late")), {"p": "a1"}),
        (volumes(None), {}),
        (SchedulingContext(), {"p": "a1"}),  # unknown: it passes
    ],
)
def test_volumes(context: SchedulingContext, expected: dict[str, str]) -> None:
    using = replaced(pod("p", SLICE), volumes=(ClaimUse(claim="c"),))
    snapshot = replace(cluster(server("a1", "a"), server("b1", "b"), pending=[using]), context=context)

    assert where(plan(snapshot)) == expected


def test_a_missing_claim_is_the_reason() -> None:
    using = replaced(pod("p", SLICE), volumes=(ClaimUse(claim="c"),))
    result = plan(replace(cluster(server("a1"), pending=[using]), context=volumes(None)))

    (reason, message) = answers(result)["p"]
    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert '1 persistentvolumeclaim "c" not found' in message
    assert result.node_changes == ()


def test_pods_about_which_something_is_unknown_come_last() -> None:
    unknown = replaced(pod("a", "7g.40gb"), volumes=(ClaimUse(claim="c"),))
    known = replaced(pod("b", "7g.40gb", created=1), anti_affinity=near(HOST))

    assert where(plan(cluster(server("a1"), pending=[unknown, known]))) == {"b": "a1"}


def test_each_pod_is_filtered_by_its_own_scheduler() -> None:
    strict = FilterProfile(
        scheduler_name="strict",
        added_affinity=(NodeSelectorTerm(labels=(Requirement(key="pool", operator="Exists"),)),),
    )
    lax = FilterProfile(scheduler_name="lax", filters=tuple(name for name in FILTERS if name != "TaintToleration"))
    gpus = [mig(0)]
    tainted = (node("t1", gpus=gpus, labels={HOST: "t1", "pool": "x"}, taints=["k"]), plan_of("t1", gpus=gpus))
    names = frozenset({"strict", "lax", "default-scheduler"})
    options = PlannerOptions(profiles={"strict": strict, "lax": lax})
    pending = [replaced(pod(name, SLICE), scheduler_name=name) for name in ("strict", "lax", "default-scheduler")]
    everywhere = cluster(tainted, server("p1", pool="y"), server("n1"), pending=pending)
    result = plan(replace(everywhere, scheduler_names=names), options)

    assert where(result)["strict"] == "p1"
    assert where(result)["default-scheduler"] in ("p1", "n1")
    assert "lax" in where(result)
    only_tainted = plan(replace(cluster(tainted, pending=pending), scheduler_names=names), options)
    assert where(only_tainted) == {"lax": "t1"}
    assert "has taint k:NoSchedule" in answers(only_tainted)["strict"][1]


def test_a_profile_that_refuses_every_pod_is_the_reason() -> None:
    broken = FilterProfile(prefilters=tuple(name for name in FILTERS if name != "NodePorts"))
    options = PlannerOptions(profiles={"default-scheduler": broken})
    result = plan(cluster(server("a1"), pending=[pod("p", SLICE)]), options)

    assert answers(result)["p"][0] is UnplacedReason.FILTERED_BY_SCHEDULER


def test_what_a_device_class_maps_is_planned_all_the_same() -> None:
    """Where a node advertises it, kube-scheduler leaves it to the device plugin."""
    context = SchedulingContext(dra_resources=frozenset({"nvidia.com/mig-1g.5gb"}))
    result = plan(replace(cluster(server("a1"), pending=[pod("p", SLICE), pod("q", "2g.10gb")]), context=context))

    assert where(result) == {"p": "a1", "q": "a1"}


@pytest.mark.parametrize(
    ("product", "relabels", "placed"),
    [
        ("NVIDIA-A100-SXM4-40GB-SHARED", True, True),
        ("NVIDIA-A100-SXM4-40GB", True, False),
        ("NVIDIA-A100-SXM4-40GB-SHARED", False, True),
        ("NVIDIA-A100-SXM4-40GB", False, True),
        ("NVIDIA-H100-80GB-HBM3", False, False),
    ],
)
def test_selectors_are_tried_against_the_labels_after_the_cut(product: str, relabels: bool, placed: bool) -> None:
    gpus = [mps(0)]
    shared = node("a1", gpus=gpus, partitioning="mps", labels={PRODUCT: "NVIDIA-A100-SXM4-40GB"})
    its_plan = replace(plan_of("a1", gpus=gpus), relabels=relabels)
    result = plan(cluster((shared, its_plan), pending=[pod("p", "10gb", selector={PRODUCT: product})]))

    assert bool(result.placed) is placed


def test_a_mig_node_keeps_its_product() -> None:
    gpus = [mig(0)]
    cut = (node("a1", gpus=gpus, labels={PRODUCT: "NVIDIA-A100-SXM4-40GB"}), plan_of("a1", gpus=gpus))
    pending = [pod("p", SLICE, selector={PRODUCT: f"NVIDIA-A100-SXM4-40GB{suffix}"}) for suffix in ("-SHARED", "")]
    result = plan(cluster(cut, pending=[replaced(one, name=f"p{n}", uid=str(n)) for n, one in enumerate(pending)]))

    assert where(result) == {"p1": "a1"}


RULES = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.sampled_from([near(), near(HOST)]),
        "anti_affinity": st.sampled_from([near(), near(HOST)]),
        "spread": st.sampled_from([(BY_ZONE,), (replace(BY_ZONE, topology_key=HOST, max_skew=2),)]),
    },
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    servers = [server(f"n{n}", draw(st.sampled_from(["a", "b", ""])), draw(st.integers(1, 2))) for n in range(4)]
    apps = st.sampled_from([(("app", "web"),), (("app", "db"),)])
    pending = [
        replaced(pod(f"p{n}", draw(st.sampled_from([SLICE, "3g.20gb"])), created=n), labels=draw(apps), **draw(RULES))
        for n in range(draw(st.integers(1, 10)))
    ]
    pods = [
        replaced(pod(f"e{n}", node_name=f"n{draw(st.integers(0, 3))}"), labels=draw(apps), **draw(RULES))
        for n in range(draw(st.integers(0, 3)))
    ]
    return cluster(*servers, pods=pods, pending=pending)


@given(snapshots())
@settings(max_examples=examples(60))
def test_every_pod_is_placed_where_the_filters_accept_it(snapshot: Snapshot) -> None:
    result = plan(snapshot)
    assert result == plan(snapshot)

    placed = where(result)
    pods = [replaced(one, node=placed[one.name]) for one in snapshot.pending if one.name in placed]
    state = ClusterState(snapshot.nodes, (*snapshot.pods, *pods))
    for one in snapshot.pending:
        if one.name in placed and state.coupled(one):
            state.remove_pod(one.uid)
            without = {"NodeResourcesFit"}
            assert state.why_not(one, placed[one.name], without=without) is None
            state.add_pod(one, placed[one.name])


def test_a_pod_that_names_its_node_and_whose_place_others_decide_is_placed_once() -> None:
    """Next to pods that have a choice of nodes: it would take two partitions, and leave one behind."""
    near = PodAffinityTerm(
        topology_key=HOST,
        selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("web",)),)),
        namespaces=("team",),
        namespace_selector=None,
    )
    own = web("own", affinity=(near,), node_selector=((HOST, "a"),))
    result = plan(cluster(server("a"), server("b"), pending=[own, pod("any", SLICE)]))

    assert len(result.placed) == result.counts.partitions_created == 2

"""The cluster while pods are placed one after the other: order of filters, nominations, and answers that keep up."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.scheduling import FILTERS, FilterProfile, NodeSelectorTerm, Requirement, SchedulingContext
from controller.model.views import NodeView, PodView
from controller.simulator.cluster import ClusterState
from tests.controller.simulator.words import a_node, a_pod, affinity, fits, near, spread, state, verdicts
from tests.drawn import examples

WEB = {"app": "web"}
SLICE = "nvidia.com/mig-1g.10gb"


def small(name: str = "n", *, slices: int = 0) -> NodeView:
    return replace(a_node(name), allocatable={"cpu": 1000, "memory": 2**30, "pods": 3, SLICE: slices})


def requesting(name: str = "p", *, priority: int = 0, **amounts: str) -> PodView:
    requests = {key.replace("slices", SLICE): value for key, value in amounts.items()}
    spec = {"priority": priority, "containers": [{"name": "main", "resources": {"requests": requests}}]}
    return a_pod(name, spec=spec)


def test_pods_come_and_go() -> None:
    cluster = state([small()])
    cluster.add_pod(requesting("e", cpu="600m"), "n")
    assert verdicts(cluster, requesting(cpu="600m"), "n") == ["NodeResourcesFit: Insufficient cpu"]

    cluster.add_pod(requesting("e", cpu="400m"), "n")  # as it is after a resize
    assert fits(cluster, requesting(cpu="600m"), "n") == ["n"]

    cluster.remove_pod("uid-e")
    cluster.remove_pod("uid-e")
    assert fits(cluster, requesting(cpu="1"), "n") == ["n"]


def test_a_caller_that_counts_resources_itself_skips_their_filter() -> None:
    cluster = state([small(slices=1)], [replace(requesting("e", slices="1"), node="n")])
    pod = requesting(slices="1")

    assert verdicts(cluster, pod, "n") == [f"NodeResourcesFit: Insufficient {SLICE}"]
    assert cluster.why_not(pod, "n", without={"NodeResourcesFit"}) is None


def test_what_dra_serves_is_not_compared_where_no_plugin_advertises_it() -> None:
    context = SchedulingContext(dra_resources=frozenset({SLICE}))
    cluster = state([small("bare"), small("plugin", slices=1)], context=context)

    assert fits(cluster, requesting(slices="2"), "bare", "plugin") == ["bare"]
    assert cluster.prefilter(requesting(slices="2")).unknown == ("what DRA allocates",)


@pytest.mark.parametrize(
    ("filters", "first"),
    [
        (FILTERS, "TaintToleration"),
        (("NodeResourcesFit", "TaintToleration"), "NodeResourcesFit"),
        (("InterPodAffinity", "NodeResourcesFit"), "InterPodAffinity"),
        ((), None),
    ],
)
def test_the_first_filter_of_the_profile_answers(filters: tuple[str, ...], first: str | None) -> None:
    tainted = replace(small(), taints=a_node("n", taints=[{"key": "k", "effect": "NoSchedule"}]).taints)
    cluster = state([tainted], profile=FilterProfile(filters=filters))
    refusal = cluster.why_not(replace(requesting(cpu="2"), affinity=a_pod("q", spec=affinity(near())).affinity), "n")

    assert (None if refusal is None else refusal.plugin) == first


def test_each_scheduler_filters_by_its_own_profile() -> None:
    added = (NodeSelectorTerm(labels=(Requirement(key="pool", operator="Exists"),)),)
    cluster = ClusterState(
        [small()],
        profiles={
            "strict": FilterProfile(scheduler_name="strict", added_affinity=added),
            "lax": FilterProfile(scheduler_name="lax", ignored_groups=frozenset({"nvidia.com"})),
        },
    )
    pod = requesting(slices="1")

    assert [cluster.why_not(replace(pod, scheduler_name=name), "n") for name in ("lax", "other")] == [
        None,
        cluster.why_not(pod, "n"),
    ]
    assert verdicts(cluster, replace(pod, scheduler_name="strict"), "n") == [
        "NodeAffinity: node(s) didn't match scheduler-enforced node affinity"
    ]


@pytest.mark.parametrize("plugin", ["NodePorts", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"])
def test_a_filter_without_its_prefilter_fails(plugin: str) -> None:
    profile = FilterProfile(prefilters=tuple(name for name in FILTERS if name != plugin))
    refusal = state([small()], profile=profile).why_not(a_pod("p"), "n")

    assert refusal is not None
    assert refusal.plugin == plugin


def test_node_affinity_falls_back_without_its_prefilter() -> None:
    by_name = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    pod = a_pod("p", spec={"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": by_name}}})
    nodes = [small("a"), small("b")]

    others = tuple(name for name in FILTERS if name != "NodeAffinity")

    def only(filters: tuple[str, ...] = FILTERS, prefilters: tuple[str, ...] = FILTERS) -> list[str]:
        return fits(state(nodes, profile=FilterProfile(filters=filters, prefilters=prefilters)), pod, "a", "b")

    assert only(prefilters=others) == ["a"]
    assert only(filters=others) == ["a"]  # the names alone are left of it
    assert only(filters=others, prefilters=others) == ["a", "b"]


def test_names_that_contradict_each_other_fit_nowhere() -> None:
    both = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("a", "b")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": both}]}}
    pod = a_pod("p", spec={"affinity": {"nodeAffinity": required}})

    assert verdicts(state([small("a")]), pod, "a") == ["NodeAffinity: pod affinity terms conflict"]


@pytest.mark.parametrize(
    ("pod", "coupled"),
    [
        (a_pod("p", WEB), True),  # an existing pod keeps it away
        (a_pod("p", {"app": "db"}), False),
        (a_pod("p", spec=affinity(near())), True),
        (a_pod("p", spec=affinity(near(), anti=True)), True),
        (a_pod("p", spec={"topologySpreadConstraints": [spread()]}), True),
        (a_pod("p", spec={"topologySpreadConstraints": [spread(hard=False)]}), False),
    ],
)
def test_pods_that_depend_on_others_are_distinguished(pod: PodView, coupled: bool) -> None:
    there = a_pod("e", on="n", spec=affinity(near(key="kubernetes.io/hostname"), anti=True))

    assert state([small()], [there]).coupled(pod) is coupled


def test_pods_can_be_placed_one_by_one() -> None:
    """Six replicas over three zones, no two on a node: two per zone, and the seventh waits."""
    nodes = [a_node(f"{zone}{number}", zone=zone) for zone in "abc" for number in (1, 2)]
    cluster = state(nodes)
    spec = {"topologySpreadConstraints": [spread()], **affinity(near(key="kubernetes.io/hostname"), anti=True)}
    placed = []
    for number in range(7):
        pod = a_pod(f"p{number}", WEB, spec=spec)
        found = next((node.name for node in nodes if cluster.why_not(pod, node.name) is None), "")
        placed.append(found)
        if found:
            cluster.add_pod(pod, found)

    assert placed == ["a1", "b1", "c1", "a2", "b2", "c2", ""]


TERMS = [near(), near("db"), near(key="kubernetes.io/hostname"), near(None)]
SPECS: list[dict[str, Any]] = [
    {},
    *(affinity(term) for term in TERMS),
    *(affinity(term, anti=True) for term in TERMS),
    {"topologySpreadConstraints": [spread()]},
    {"topologySpreadConstraints": [spread(), spread("kubernetes.io/hostname", app="db", skew=2)]},
    {"topologySpreadConstraints": [spread(minDomains=3, nodeTaintsPolicy="Honor")]},
]
PODS = st.builds(
    lambda number, app, spec, namespace: a_pod(f"p{number}", {"app": app}, spec=spec, namespace=namespace),
    st.integers(0, 9),
    st.sampled_from(["web", "db"]),
    st.sampled_from(SPECS),
    st.sampled_from(["team", "other"]),
)
NAMES = ["a1", "a2", "b1", "x"]
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "ask"]), PODS, st.sampled_from(NAMES)), max_size=25)


@given(STEPS)
@settings(max_examples=examples(60))
def test_answers_are_those_of_a_cluster_that_is_seen_for_the_first_time(
    steps: list[tuple[str, PodView, str]],
) -> None:
    nodes = [a_node("a1", zone="a"), a_node("a2", zone="a"), a_node("b1", zone="b"), a_node("x")]
    cluster, there = state(nodes), dict[str, PodView]()
    for act, pod, node in steps:
        if act == "add":
            cluster.add_pod(pod, node)
            there[pod.uid] = replace(pod, node=node)
        elif act == "remove":
            cluster.remove_pod(pod.uid)
            there.pop(pod.uid, None)
        elif pod.uid not in there:
            assert verdicts(cluster, pod, *NAMES) == verdicts(state(nodes, there.values()), pod, *NAMES)
            assert cluster.coupled(pod) == state(nodes, there.values()).coupled(pod)

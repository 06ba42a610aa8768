"""Where a pass examines less than it could, since pods are unlike: no other pod loses its place by that."""

import random
from dataclasses import replace
from typing import Any

import pytest

from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement, SchedulingContext
from controller.model.views import PodView
from controller.planner import effort, strategy
from controller.planner.effort import Effort
from controller.planning import plan
from tests.controller.planner.builders import cluster, holder, mig, pod, replaced, server
from tests.controller.planner.test_effort import crowded, hostile, ordinary

HOST = "kubernetes.io/hostname"
LAYOUTS = [
    ["7g.40gb"],
    ["4g.20gb", "3g.20gb"],
    ["3g.20gb", "3g.20gb"],
    ["4g.20gb", "2g.10gb", "1g.5gb"],
    ["2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"],
    ["1g.5gb"] * 7,
    ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"],
]
APART: dict[str, Any] = {
    "labels": (("app", "g"),),
    "anti_affinity": (
        PodAffinityTerm(
            topology_key=HOST,
            selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("g",)),)),
            namespace_selector=LabelSelector(),
        ),
    ),
}


@pytest.mark.parametrize(
    ("seed", "nodes"), [(0, 100), *(pytest.param(seed, 200, marks=pytest.mark.thorough) for seed in (0, 1))]
)
def test_pods_that_each_may_use_other_nodes_cost_no_pod_its_place_where_all_have_room(seed: int, nodes: int) -> None:
    rng = random.Random(seed)
    names = [f"node-{number:03}" for number in range(nodes)]
    wants = [(profile, n) for n in range(nodes) if rng.random() >= 0.1 for profile in rng.choice(LAYOUTS)]
    rng.shuffle(wants)
    pending: list[PodView] = []
    for number, (profile, home) in enumerate(wants):
        if rng.random() < 0.3:
            away = names[rng.choice([other for other in range(nodes) if other != home])]
            rule = [Requirement(key=HOST, operator="NotIn", values=(away,))]
            pending.append(pod(f"odd-{number:04}", profile, namespace="odd", created=number, affinity=rule))
        else:
            pending.append(pod(f"good-{number:04}", profile, namespace="good", created=number))
    assert not plan(cluster(*[server(name, mig(), labels={HOST: name}) for name in names], pending=pending)).unplaced


@pytest.mark.parametrize("number", [100, 200])
def test_a_reservation_where_no_room_is_left_costs_no_pod_its_share(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(Effort.__init__, "__defaults__", (20_000, effort.never))
    good = [ordinary(number) for number in range(6)]
    snapshot = crowded([*(hostile(n, priority=5) for n in range(number)), *good], bound=100, nodes=20)
    nodes = tuple(
        replace(node, allocatable={**node.allocatable, "cpu": 1}) if node.name == "node-0" else node
        for node in snapshot.nodes
    )
    there = tuple(one for one in snapshot.pods if one.node != "node-0")
    reserved = {one.uid: "node-0" for one in good}

    found = plan(replace(snapshot, nodes=nodes, pods=there, reservations=reserved))

    assert sum(placed.key[0] == "good" for placed in found.placed) == 6


LEVELS = [pod(f"high-{number}", "7g.40gb", priority=10 + number) for number in range(3)]
"""One GPU too many, so that levels have their turns one after the other."""


@pytest.mark.parametrize("looks", [2_000_000, 0])
def test_a_constrained_pod_of_a_gang_that_runs_has_a_place(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    monkeypatch.setattr(strategy, "LOOKS", looks)
    member = replaced(pod("gang-1", "1g.5gb", priority=1, gang="gang", gang_size=2), **APART)
    running = replaced(holder("node-0", "1g.5gb", name="gang-0"), gang="gang", gang_size=2, **APART)
    nodes = [
        server("node-0", mig(used=[("1g.5gb", 0)], holder="team/gang-0"), labels={HOST: "node-0"}),
        server("node-1", mig(), labels={HOST: "node-1"}),
        server("node-2", mig(used=[("1g.5gb", 0)], holder="team/other"), labels={HOST: "node-2"}),
    ]
    there = [running, holder("node-2", "1g.5gb", name="other")]
    snapshot = cluster(*nodes, pods=there, pending=[*LEVELS, member])

    found = plan(replace(snapshot, context=SchedulingContext(namespaces={"team": {}})))

    assert "gang-1" in {placed.key[1] for placed in found.placed}


@pytest.mark.parametrize("looks", [2_000_000, 0])
@pytest.mark.parametrize("more", [{}, APART], ids=["plain", "constrained"])
def test_what_the_scheduler_gives_to_an_untried_pod_is_planned_for_no_other(
    monkeypatch: pytest.MonkeyPatch, looks: int, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(strategy, "LOOKS", looks)
    untried = replaced(pod("untried", "3g.20gb", priority=1, unschedulable=False, created=1), **more)
    low = pod("low", "3g.20gb", priority=1, created=5, cpu=2000)
    other = replaced(holder("node-2", "1g.5gb", name="other"), labels=(("app", "g"),))
    nodes = [
        server("node-0", mig(used=[("4g.20gb", 0)], idle=[("3g.20gb", 4)]), labels={HOST: "node-0"}),
        server("node-1", mig(), labels={HOST: "node-1"}),
        server("node-2", mig(used=[("1g.5gb", 0)], holder="team/other"), labels={HOST: "node-2"}),
    ]
    snapshot = cluster(*nodes, pods=[holder("node-0", "4g.20gb"), other], pending=[*LEVELS, untried, low])

    found = plan(replace(snapshot, context=SchedulingContext(namespaces={"team": {}})))

    assert {placed.key[1]: placed.node for placed in found.placed}.get("low") != "node-0"

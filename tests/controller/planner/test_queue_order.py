"""Without nominations the scheduler deals in its own order; whoever is planned then gets a place by its filters."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.instances import MIXES, instance
from controller.model.demand import queue_order
from controller.model.views import PlannerOptions, Snapshot
from controller.planner import plan
from controller.simulator import ClusterState
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.checker import check
from tests.controller.planner.world import applied
from tests.drawn import examples

OFF = PlannerOptions(queue_order=True)
RULES: dict[str, Callable[[int], int]] = {"most free CPU": lambda free: -free, "least free CPU": lambda free: free}


def bound_by_the_scheduler(snapshot: Snapshot, rule: Callable[[int], int]) -> set[str]:
    """Every pending pod in queue order on the best node that all filters let it on; none jumps the queue."""
    state = ClusterState(snapshot.nodes, snapshot.pods)
    free = {
        node.name: node.allocatable["cpu"] - state.usage(node.name).requested.get("cpu", 0) for node in snapshot.nodes
    }
    bound = set()
    for one in sorted(snapshot.pending, key=queue_order):
        able = [node.name for node in snapshot.nodes if state.why_not(one, node.name) is None]
        if able:
            chosen = min(able, key=lambda name: (rule(free[name]), name))
            state.add_pod(one, chosen)
            free[chosen] -= dict(one.requests).get("cpu", 0)
            bound.add(one.uid)
    return bound


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Some pods were not tried yet, and may take what is made for others."""
    snapshot = instance(
        nodes=draw(st.integers(1, 6)),
        gpus=draw(st.integers(1, 4)),
        pods=draw(st.integers(0, 50)),
        seed=draw(st.integers(0, 10_000)),
        mix=MIXES[draw(st.sampled_from(sorted(MIXES)))],
    )
    untried = draw(st.sampled_from((0, 0, 3, 7)))
    pending = (
        replace(one, unschedulable=not untried or bool(number % untried)) for number, one in enumerate(snapshot.pending)
    )
    return replace(snapshot, pending=tuple(pending))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=examples(60))
@given(snapshot=snapshots())
def test_whoever_is_planned_is_bound(rule: str, snapshot: Snapshot) -> None:
    result = plan(snapshot, OFF)
    bound = bound_by_the_scheduler(applied(snapshot, result), RULES[rule])

    assert {one.uid for one in result.placed} <= bound


@settings(max_examples=examples(40))
@given(snapshot=snapshots())
def test_the_plan_itself_keeps_every_rule(snapshot: Snapshot) -> None:
    check(snapshot, plan(snapshot, OFF), for_somebody=False)


def names(snapshot: Snapshot, options: PlannerOptions) -> list[str]:
    return [one.key[1] for one in plan(snapshot, options).placed]


LARGE, SMALL = pod("large", "7g.40gb", created=1), [pod(f"small-{n}", "1g.5gb", created=2 + n) for n in range(7)]


def test_the_first_of_the_queue_goes_before_most_pods() -> None:
    snapshot = cluster(server("node-1", mig()), pending=[LARGE, *SMALL])

    assert len(names(snapshot, PlannerOptions())) == 7
    assert names(snapshot, OFF) == ["large"]


def test_priority_goes_before_creation_and_ageing_counts_for_nothing() -> None:
    urgent = replace(LARGE, priority=1, created=99)
    aged = frozenset(one.uid for one in SMALL)
    snapshot = replace(cluster(server("node-1", mig()), pending=[urgent, *SMALL]), aged=aged)

    assert names(snapshot, OFF) == ["large"]


def test_a_promise_jumps_no_queue() -> None:
    """The one idle instance was promised to the later pod; the scheduler will bind the earlier one."""
    pending = [pod("first", "7g.40gb", created=1), pod("later", "7g.40gb", created=2)]
    snapshot = cluster(server("node-1", mig(idle=[("7g.40gb", 0)])), pending=pending)
    promised = replace(snapshot, promises={"uid-later": "node-1"})

    assert names(promised, PlannerOptions()) == ["later"]
    assert names(promised, OFF) == ["first"]


def test_who_may_be_outrun_is_not_counted_on() -> None:
    """The first has not been tried, so nothing is made for it; it would take what is made for the second."""
    untried = pod("untried", "7g.40gb", created=1, unschedulable=False)
    result = plan(cluster(server("node-1", mig()), pending=[untried, pod("later", "7g.40gb", created=2)]), OFF)

    assert result.placed == ()
    assert result.node_changes == ()
    assert "ahead of it in its scheduler's queue" in result.unplaced[0].message
    assert "nominatePods" in result.unplaced[0].message


def test_where_all_are_served_the_order_changes_nothing() -> None:
    snapshot = instance(nodes=4, gpus=4, pods=20, seed=1, mix=MIXES["plain"])

    assert len(plan(snapshot, OFF).placed) == len(plan(snapshot).placed) == 20

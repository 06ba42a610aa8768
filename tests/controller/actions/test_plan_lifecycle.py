"""Missing plans, orphans and pinned items, against the API server."""

import pytest

from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.api.nodes import read_node
from crds.v1alpha1 import names, paths
from kube import apply
from tests.builders.objects import Json, item, node
from tests.controller.cluster import Bench


def plan_lifecycle(bench: Bench) -> PlanLifecycle:
    writer = Writer(bench.environment)
    return PlanLifecycle(
        bench.environment, writer, namespace=names.NAMESPACE, plan_return_seconds=60, orphan_plan_seconds=3600
    )


def test_an_enabled_node_gets_an_empty_plan_and_others_none(bench: Bench) -> None:
    bench.cluster.node(node("n1"))
    bench.cluster.node(node("n2", mode=None))
    bench.load()
    work = plan_lifecycle(bench)
    assert work.run()
    assert bench.cluster.plans() == ["n1"]
    assert bench.cluster.get_plan()["spec"] == {"nodeName": "n1"}
    assert bench.state.cluster.plan_exists("n1")
    assert not work.run()


def test_a_plan_that_is_there_already_is_no_problem(bench: Bench) -> None:
    bench.cluster.node(node("n1"))
    bench.load()
    bench.cluster.plan("n1", mode="Manual")
    plan_lifecycle(bench).run()
    assert bench.errors("lifecycle") == 0
    assert bench.cluster.get_plan()["spec"]["mode"] == "Manual"


def test_a_deleted_plan_returns_after_a_minute(bench: Bench) -> None:
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1")
    bench.load()
    work = plan_lifecycle(bench)
    apply.delete(bench.cluster.api, paths.plan("n1"))
    bench.state.observe_plan("n1", None)
    bench.clock.now += 59
    assert not work.run()
    bench.clock.now += 1
    work.run()
    assert bench.cluster.plans() == ["n1"]


def test_a_failure_is_counted_tried_again_later_and_stops_no_other(bench: Bench) -> None:
    for name in ("n1", "n2"):
        bench.cluster.node(node(name))
    bench.load()
    fault = bench.cluster.refuse("POST", "/gpupartitionplans")
    work = plan_lifecycle(bench)
    work.run()
    assert bench.errors("lifecycle") == 2
    bench.cluster.server.faults.remove(fault)
    assert not work.run()
    bench.clock.now += 5
    assert work.run()
    assert bench.cluster.plans() == ["n1", "n2"]


def test_non_leader_does_nothing(bench: Bench) -> None:
    bench.cluster.node(node("n1"))
    bench.load()
    bench.leads = False
    plan_lifecycle(bench).run()
    assert bench.cluster.plans() == []


@pytest.mark.parametrize(
    ("spec", "deleted"),
    [
        ({}, True),
        ({"planned": {"gpus": [item(0, 3)]}}, True),
        ({"gpus": [{"index": 0, "whole": {}}]}, False),
        ({"mode": "Auto"}, False),
    ],
)
def test_a_plan_without_a_node_is_deleted_after_an_hour_unless_a_person_wrote_in_it(
    bench: Bench, spec: Json, deleted: bool
) -> None:
    bench.cluster.plan("n1", **spec)
    bench.load()
    work = plan_lifecycle(bench)
    bench.state.tick()
    bench.clock.now += 3599
    bench.state.tick()
    work.run()
    assert bench.cluster.plans() == ["n1"]
    bench.clock.now += 1
    work.run()
    assert bench.cluster.plans() == ([] if deleted else ["n1"])


@pytest.mark.parametrize("gone_before", [False, True])
def test_the_plan_of_a_node_that_cannot_be_read_stays(bench: Bench, gone_before: bool) -> None:
    bench.cluster.plan("n1")
    bench.load()
    if gone_before:
        bench.state.tick()
    bench.state.observe_node("n1", read_node(node("n1") | {"spec": {"taints": [{"effect": "NoSchedule"}]}}))
    assert ("node", "n1") in bench.state.cluster.unreadable()
    work = plan_lifecycle(bench)
    for _ in range(3):
        bench.clock.now += 3600
        work.run()  # also before the tick that forgets when it was gone
        bench.state.tick()
    assert bench.cluster.plans() == ["n1"]
    bench.state.observe_node("n1", None)
    bench.state.tick()
    work.run()
    assert bench.cluster.plans() == ["n1"]
    bench.clock.now += 3600
    work.run()
    assert bench.cluster.plans() == []


def test_an_orphan_that_was_written_in_between_stays(bench: Bench) -> None:
    bench.cluster.plan("n1")
    bench.load()
    bench.state.tick()
    bench.clock.now += 3600
    bench.cluster.pin("n1", {"index": 0, "whole": {}})
    plan_lifecycle(bench).run()
    assert bench.cluster.plans() == ["n1"]
    assert bench.errors("lifecycle") == 0


def test_pinned_items_are_dropped_as_soon_as_they_are_seen(bench: Bench) -> None:
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1", mode="Manual", planned={"gpus": [item(0, 3), item(1, 0)]})
    bench.cluster.pin("n1", {"index": 0, "whole": {}})
    bench.load()
    work = plan_lifecycle(bench)
    assert work.run()
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(1, 0)]
    assert not work.run()


def test_a_node_that_is_not_enabled_any_more_is_left_as_it_is(bench: Bench) -> None:
    bench.cluster.node(node("n1", mode=None))
    bench.cluster.plan("n1", gpus=[{"index": 0, "whole": {}}], planned={"gpus": [item(0, 3)]})
    bench.load()
    assert not plan_lifecycle(bench).run()


def test_a_node_that_waits_to_be_handed_back_keeps_a_plan(bench: Bench) -> None:
    """Or its agent had nowhere to report what it waits for."""
    bench.cluster.node(node("n1", labels={names.LABEL_NODE_AGENT: "true"}))
    bench.load()
    assert plan_lifecycle(bench).run()
    assert bench.cluster.plans() == ["n1"]

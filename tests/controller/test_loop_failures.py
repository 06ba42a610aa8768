"""Turns in which something fails: a pass, a write, or a pass that hangs. The other work continues."""

import logging

import pytest

from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from tests.builders.objects import item, node, pod
from tests.controller.loop_rig import LoopRig, everything_on_n1


def broken(_: Snapshot) -> PlanningResult:
    raise ZeroDivisionError("no plan today")


def test_a_broken_pass_is_logged_once_counted_and_retried(rig: LoopRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.settle()
    rig.answer = broken
    rig.bench.cluster.pod(pod())
    rig.turn()
    with caplog.at_level(logging.ERROR):
        rig.turn(after=10)
        assert len(rig.snapshots) == 1
        assert not rig.idle()
        rig.turn(after=0.5)
        assert len(rig.snapshots) == 1
        for _ in range(10):
            rig.turn(after=30)
    assert 3 <= len(rig.snapshots) <= 6
    assert rig.bench.errors("planning") == len(rig.snapshots)
    logged = [record for record in caplog.records if record.name == "controller.loop"]
    assert [record.exc_info is not None for record in logged] == [True]
    rig.answer = lambda _: PlanningResult()
    for _ in range(4):
        rig.turn(after=60)
    assert rig.idle()
    assert rig.loop.decisions()["pass"] == 2


def test_three_failed_passes_in_a_row_end_readiness_and_one_that_succeeds_restores_it(rig: LoopRig) -> None:
    rig.settle()
    rig.answer = broken
    rig.bench.cluster.pod(pod())
    rig.turn()
    ready = []
    while len(rig.snapshots) < 3:
        rig.turn(after=10)
        ready.append((len(rig.snapshots), not rig.loop.failing()))
    assert {passes for passes, is_ready in ready if not is_ready} == {3}
    assert rig.loop.failing() == [
        "3 planning passes in a row have failed: ZeroDivisionError: no plan today: see the traceback in the log"
    ]
    assert rig.loop.problems() == []
    rig.answer = lambda _: PlanningResult()
    for _ in range(4):
        rig.turn(after=60)
    assert rig.loop.failing() == []


def test_while_passes_fail_the_other_work_continues(rig: LoopRig) -> None:
    rig.settle()
    rig.answer = broken
    rig.bench.cluster.node(node("n1"))
    rig.bench.cluster.pod(pod())
    rig.turn()
    rig.turn(after=10)
    assert rig.bench.cluster.plans() == ["n1"]
    assert "AgentAlive" in rig.bench.cluster.conditions("n1")


def test_a_write_that_failed_is_retried_later(rig: LoopRig) -> None:
    cluster = rig.bench.cluster
    cluster.node(node("n1"))
    rig.settle()
    rig.answer = everything_on_n1(item(0, 3))
    cluster.pod(pod())
    rig.turn()
    fault = cluster.refuse("PATCH", "/gpupartitionplans/n1")
    rig.turn(after=10)
    assert not rig.idle()
    assert rig.bench.errors("write") == 1
    cluster.server.faults.remove(fault)
    rig.turn(after=1)  # planned at once, and left out as long as its back-off lasts
    rig.turn(after=5)
    rig.turn(after=10)
    assert cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    assert rig.idle()


def test_a_plan_that_was_overtaken_is_planned_again(rig: LoopRig) -> None:
    cluster = rig.bench.cluster
    cluster.node(node("n1"))
    rig.settle()

    def overtaken(snapshot: Snapshot) -> PlanningResult:
        if len(rig.snapshots) == 1:
            cluster.pin("n1", {"index": 1, "whole": {}})
        return everything_on_n1(item(0, 3))(snapshot)

    rig.answer = overtaken
    cluster.pod(pod())
    rig.turn()
    rig.turn(after=10)
    assert "planned" not in cluster.get_plan()["spec"]
    assert not rig.idle()
    rig.turn(after=10)
    assert cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    assert rig.idle()


def test_a_plan_that_was_not_written_while_the_lease_lapsed_for_a_moment_is_planned_again(rig: LoopRig) -> None:
    """As after a pause of the whole machine: the process finds the Lease its own still, and goes on."""
    rig.bench.cluster.node(node("n1"))
    rig.settle()
    rig.bench.cluster.pod(pod())
    rig.turn()
    write = everything_on_n1(item(0, 3))

    def answer(snapshot: Snapshot) -> PlanningResult:
        rig.bench.leads = False
        return write(snapshot)

    rig.answer = answer
    rig.turn(after=10)
    assert "planned" not in rig.bench.cluster.get_plan()["spec"]
    assert len(rig.snapshots) == 1
    rig.turn(after=1)
    assert len(rig.snapshots) == 1  # another one may lead now

    rig.bench.leads = True
    rig.answer = write
    assert not rig.idle()
    rig.turn(after=1)
    assert "planned" in rig.bench.cluster.get_plan()["spec"]


def test_a_stuck_pass_shows_in_the_health_check(rig: LoopRig) -> None:
    rig.turn()
    assert rig.loop.problems() == []
    rig.bench.clock.now += 121
    assert rig.loop.problems() == ["the main loop has not completed a turn for 121 s"]

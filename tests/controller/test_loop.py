"""The order of things in a turn, with a planner that the test plays and a clock that only the test moves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from controller.actions.agent_liveness import AgentLiveness
from controller.actions.nominations import Nominator
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.actions.reporter import Reporter
from controller.lifetime import Lifetime
from controller.loop import Loop, Parts, causes, rest_seconds
from controller.model.results import NodeChange, Placed, PlanningResult, Supply
from controller.model.snapshot import Snapshot
from tests.builders.objects import Json, item, node, pod
from tests.controller.actions.recorder import Recorder
from tests.controller.actions.test_plan_writer import planned
from tests.controller.cluster import Bench


class Rig:
    """A loop whose watches are `load`, and whose planner answers what `answer` makes of the snapshot."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.snapshots: list[Snapshot] = []
        self.answer: Callable[[Snapshot], PlanningResult] = lambda _: PlanningResult()
        self.synced = True
        self.recorder = Recorder()
        environment = bench.environment
        writer = Writer(environment)
        parts = Parts(
            environment=environment,
            window=bench.window,
            planner=self.plan,
            writer=writer,
            plan_lifecycle=PlanLifecycle(environment, writer, plan_return_seconds=60, orphan_plan_seconds=3600),
            agent_liveness=AgentLiveness(environment, agent_silent_seconds=60, taint_removal_seconds=180),
            reporter=Reporter(environment, self.recorder),
            nominator=Nominator(environment, enabled=True),
        )
        self.lifetime = Lifetime()
        self.loop = Loop(parts, lifetime=self.lifetime, synced=lambda: self.synced)

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        self.snapshots.append(snapshot)
        return self.answer(snapshot)

    def turn(self, *, after: float = 0.0) -> float:
        """The watches bring what is new, time passes, one turn."""
        self.bench.load()
        self.bench.clock.now += after
        return self.loop.turn()

    def idle(self) -> bool:
        return self.loop.idle

    def settle(self) -> None:
        """Through the first pass."""
        self.turn()
        self.turn(after=10)
        self.snapshots.clear()


@pytest.fixture
def rig(bench: Bench) -> Rig:
    return Rig(bench)


def everything_on_n1(*items: Json) -> Callable[[Snapshot], PlanningResult]:
    def answer(snapshot: Snapshot) -> PlanningResult:
        placed = tuple(Placed(uid=p.uid, key=p.key, node="n1", supply=Supply.NEW) for p in snapshot.pending)
        change = NodeChange(node="n1", gpus=tuple(planned(raw) for raw in items), changed=(0,))
        return PlanningResult(placed=placed, node_changes=(change,) if placed else ())

    return answer


def test_the_first_pass_comes_by_itself_and_then_nothing(rig: Rig) -> None:
    assert not rig.idle()
    assert rig.turn() == 1.0
    assert rig.snapshots == []
    rig.turn(after=10)
    assert len(rig.snapshots) == 1
    assert rig.idle()
    for _ in range(5):
        rig.turn(after=60)
    assert len(rig.snapshots) == 1
    assert rig.loop.decisions()["pass"] == 1


def test_a_pass_waits_for_the_window(rig: Rig) -> None:
    rig.settle()
    rig.bench.cluster.pod(pod())
    assert rig.turn() == 1.0
    assert not rig.idle()
    assert rig.turn(after=9.5) == 0.5
    assert rig.snapshots == []
    rig.turn(after=0.5)
    assert [p.name for p in rig.snapshots[0].pending] == ["p"]
    assert rig.idle()


def test_what_a_pass_writes_does_not_start_the_next_one(rig: Rig) -> None:
    cluster = rig.bench.cluster
    cluster.node(node("n1"))
    rig.settle()
    rig.answer = everything_on_n1(item(0, 3))
    cluster.pod(pod())
    cluster.agent_status("n1", {"observedGeneration": 1})
    rig.turn()
    rig.turn(after=10)
    assert cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    assert [(kind, reason) for _, kind, reason, _ in rig.recorder.emitted] == [
        ("Normal", "Planned"),
        ("Normal", "PlanWritten"),
    ]
    for _ in range(5):
        rig.turn(after=30)
    assert len(rig.snapshots) == 1
    assert cluster.get_plan()["metadata"]["generation"] == 2


def test_nothing_happens_before_the_watches_are_there(rig: Rig) -> None:
    rig.bench.cluster.node(node("n1"))
    rig.synced = False
    rig.turn(after=100)
    assert rig.bench.cluster.plans() == []
    assert not rig.idle()


def test_a_follower_watches_and_a_new_leader_plans(rig: Rig) -> None:
    rig.bench.cluster.node(node("n1"))
    rig.bench.leads = False
    rig.bench.cluster.pod(pod())
    rig.turn(after=100)
    assert (rig.snapshots, rig.bench.cluster.plans(), rig.idle()) == ([], [], False)
    assert rig.bench.metrics.registry.get_sample_value("gpuplan_leader") == 0
    rig.bench.leads = True
    rig.turn()
    rig.turn(after=10)
    assert len(rig.snapshots) == 1
    assert rig.bench.cluster.plans() == ["n1"]
    assert rig.bench.metrics.registry.get_sample_value("gpuplan_leader") == 1


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (("start",), "start"),
        (
            ("pod a", "node n1", "pod b", "objects of /api/v1/namespaces"),
            "pods: 2, nodes: 1, objects of /api/v1/namespaces",
        ),
        ((), "plans not written"),
    ],
)
def test_the_keys_of_the_window_say_why_a_pass_runs(keys: tuple[str, ...], why: str) -> None:
    assert causes(keys) == why


def test_the_log_says_why_a_pass_ran(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.settle()
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="controller.actions.reporter"):
        rig.bench.cluster.pod(pod())
        rig.turn()
        rig.turn(after=10)

    assert [record.message.partition(":")[0] + ":" for record in caplog.records] == ["pass 2 (pods:"]


def test_a_broken_pass_is_logged_once_counted_and_retried(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.settle()

    def broken(_: Snapshot) -> PlanningResult:
        raise ZeroDivisionError("no plan today")

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
    told = [record for record in caplog.records if record.name == "controller.loop"]
    assert [record.exc_info is not None for record in told] == [True]
    rig.answer = lambda _: PlanningResult()
    for _ in range(4):
        rig.turn(after=60)
    assert rig.idle()
    assert rig.loop.decisions()["pass"] == 2


def test_three_failed_passes_in_a_row_end_readiness_and_one_that_succeeds_restores_it(rig: Rig) -> None:
    rig.settle()

    def broken(_: Snapshot) -> PlanningResult:
        raise ZeroDivisionError("no plan today")

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


def test_while_passes_break_the_other_work_goes_on(rig: Rig) -> None:
    rig.settle()

    def broken(_: Snapshot) -> PlanningResult:
        raise ZeroDivisionError("no plan today")

    rig.answer = broken
    rig.bench.cluster.node(node("n1"))
    rig.bench.cluster.pod(pod())
    rig.turn()
    rig.turn(after=10)
    assert rig.bench.cluster.plans() == ["n1"]
    assert "AgentAlive" in rig.bench.cluster.conditions("n1")


def test_a_write_that_failed_is_tried_again_later(rig: Rig) -> None:
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


def test_a_plan_that_was_overtaken_is_planned_again(rig: Rig) -> None:
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


def test_nodes_under_way_are_named(rig: Rig) -> None:
    cluster = rig.bench.cluster
    cluster.node(node("n1"))
    rig.settle()
    rig.answer = everything_on_n1(item(0, 3))
    cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    cluster.confirm("n1")
    status = cluster.get_plan()["status"]
    status["gpus"] = [{"index": 0, "uuid": item(0)["uuid"], "state": "Unmanaged", "partitions": []}]
    cluster.agent_status("n1", {key: status[key] for key in ("gpus", "node", "observedGeneration")})
    cluster.pod(pod())
    rig.turn()
    rig.turn(after=10)
    assert rig.loop.decisions()["underWay"] == ["n1"]
    cluster.confirm("n1")
    rig.turn()
    assert rig.loop.decisions()["underWay"] == []


def test_a_stuck_pass_shows_in_the_health_check(rig: Rig) -> None:
    rig.turn()
    assert rig.loop.problems() == []
    rig.bench.clock.now += 121
    assert rig.loop.problems() == ["the loop has been in one turn for 121 s"]


@pytest.mark.parametrize(("spent", "rest"), [(0.0, 0.05), (0.1, 0.3), (40.0, 2.0)])
def test_rests_in_proportion_but_not_for_long(spent: float, rest: float) -> None:
    """A rest of three times a long pass would look stuck to the health check, and its pods would wait in vain."""
    assert rest_seconds(spent) == pytest.approx(rest)


def test_runs_until_it_is_stopped(rig: Rig) -> None:
    thread = threading.Thread(target=rig.loop.run)
    thread.start()
    rig.lifetime.end()
    thread.join(5)
    assert not thread.is_alive()

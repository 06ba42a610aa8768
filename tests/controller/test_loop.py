"""The order of things in a turn, with a planner that the test plays and a clock that only the test moves."""

import logging
import threading

import pytest

from controller.loop import causes, rest_seconds
from tests.builders.objects import item, node, pod
from tests.controller.loop_rig import LoopRig, everything_on_n1


def test_the_first_pass_comes_by_itself_and_then_nothing(rig: LoopRig) -> None:
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


def test_a_pass_waits_for_the_window(rig: LoopRig) -> None:
    rig.settle()
    for name in ("p", "q"):
        rig.bench.cluster.pod(pod(name))
    assert rig.turn() == 1.0
    assert not rig.idle()
    assert rig.turn(after=9.5) == 0.5
    assert rig.snapshots == []
    rig.turn(after=0.5)
    assert [p.name for p in rig.snapshots[0].pending] == ["p", "q"]
    assert rig.idle()


def test_what_a_pass_writes_does_not_start_the_next_one(rig: LoopRig) -> None:
    cluster = rig.bench.cluster
    cluster.node(node("n1"))
    rig.settle()
    rig.answer = everything_on_n1(item(0, 3))
    cluster.pod(pod())
    cluster.agent_status("n1", {"observedGeneration": 1})
    rig.turn()
    rig.turn(after=10)
    assert cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    assert [(kind, reason) for _, kind, reason, _ in rig.recorder.emitted] == [("Normal", "PlanWritten")]
    for _ in range(5):
        rig.turn(after=30)
    assert len(rig.snapshots) == 1
    assert cluster.get_plan()["metadata"]["generation"] == 2


def test_nothing_happens_before_the_watches_are_there(rig: LoopRig) -> None:
    rig.bench.cluster.node(node("n1"))
    rig.synced = False
    rig.turn(after=100)
    assert rig.bench.cluster.plans() == []
    assert not rig.idle()


def test_a_follower_watches_and_a_new_leader_plans(rig: LoopRig) -> None:
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
            ("pod uid-a", "node n1", "pod uid-b", "objects of /api/v1/namespaces"),
            "pods: default/a and default/b; nodes: n1; objects of /api/v1/namespaces",
        ),
        (("node n1", "node n2", "node n3", "node n4", "node n5"), "nodes: n1, n2, n3 and 2 more"),
        (("pod uid-gone", "pod uid-a"), "pods: one that is gone and default/a"),
        ((), "plans not written"),
    ],
)
def test_the_keys_of_the_window_show_why_a_pass_runs(keys: tuple[str, ...], why: str) -> None:
    assert causes(keys, {"uid-a": "default/a", "uid-b": "default/b"}) == why


def test_the_log_shows_why_a_pass_ran(rig: LoopRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.settle()
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="controller.actions.reporter"):
        rig.bench.cluster.pod(pod())
        rig.turn()
        rig.turn(after=10)

    (record,) = caplog.records
    assert record.message.startswith("pass 2: ")
    assert vars(record)["fields"]["why"] == "pods: default/p"


def test_nodes_under_way_are_named(rig: LoopRig) -> None:
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


@pytest.mark.parametrize(("spent", "rest"), [(0.0, 0.05), (0.1, 0.3), (40.0, 2.0)])
def test_rests_in_proportion_but_not_for_long(spent: float, rest: float) -> None:
    """A rest of three times a long pass would look stuck to the health check, and its pods would wait in vain."""
    assert rest_seconds(spent) == pytest.approx(rest)


def test_runs_until_it_is_stopped(rig: LoopRig) -> None:
    thread = threading.Thread(target=rig.loop.run)
    thread.start()
    rig.lifetime.end()
    thread.join(5)
    assert not thread.is_alive()

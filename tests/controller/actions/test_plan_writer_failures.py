"""Writes of plans that fail, are refused or get no answer: the other plans are written, and the failed one later."""

from typing import Any

import pytest

from controller.actions.plan_writer import Written
from controller.model.results import NodeChange, PlanningResult
from controller.model.views import MigDesired, PlannedGpu
from partitioning.layouts import Layout
from tests.apiserver import Disconnect
from tests.builders.objects import item, node
from tests.controller.actions.writing import change, plan_edited, plan_recreated, ready, write, writer
from tests.controller.cluster import Bench


def test_items_that_cannot_be_written_fail_their_own_node_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    ready(bench)
    bench.cluster.node(node("n2"))
    bench.cluster.plan("n2")
    bench.load()
    too_many = MigDesired(layout=Layout.of(()), counts=(("1g.10gb", 17),))
    broken = NodeChange(node="n1", gpus=(PlannedGpu(index=0, uuid="", desired=too_many),), changed=(0,))
    writing = writer(bench)
    for _ in range(2):
        result = PlanningResult(node_changes=(broken, change(item(0, 3), name="n2")))
        failed, _applied = writing.write(result, bench.state.cluster.snapshot())
        assert failed.written is Written.FAILED
        assert failed.message.startswith("ValidationError: ")
        bench.clock.now += 60  # its back-off
    assert bench.cluster.get_plan("n2")["spec"]["planned"]["gpus"] == [item(0, 3)]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_one_failure_leaves_the_others_alone(bench: Bench) -> None:
    for name in ("n1", "n2", "n3"):
        bench.cluster.node(node(name))
        bench.cluster.plan(name)
    bench.load()
    bench.cluster.refuse("PATCH", "/n2")
    outcomes = write(bench, *(change(item(0, 3), name=name) for name in ("n1", "n2", "n3")))
    assert [(o.node, o.written) for o in outcomes] == [
        ("n1", Written.APPLIED),
        ("n2", Written.FAILED),
        ("n3", Written.APPLIED),
    ]
    assert outcomes[1].message == "injected fault"


def without_an_answer(bench: Bench, *, landed: bool, readable: bool) -> list[str]:
    """Every write of a plan loses its connection; the requests that were sent."""
    sent: list[str] = []

    def fault(request: Any) -> Disconnect | None:
        if "/gpupartitionplans/" not in request.path or request.path.endswith("/status"):
            return None
        sent.append(request.method)
        if request.method == "PATCH":
            return Disconnect(after_write=landed)
        return None if readable else Disconnect()

    bench.cluster.server.faults.append(fault)
    return sent


@pytest.mark.parametrize(
    ("landed", "readable", "written"),
    [
        (True, True, Written.APPLIED),
        (False, True, Written.FAILED),
        (True, False, Written.UNANSWERED),
        (False, False, Written.UNANSWERED),
    ],
)
def test_a_write_without_an_answer_is_read_back(bench: Bench, landed: bool, readable: bool, written: Written) -> None:
    ready(bench)
    sent = without_an_answer(bench, landed=landed, readable=readable)
    (outcome,) = write(bench, change(item(0, 3)))
    assert outcome.written is written
    assert sent == ["PATCH", "GET"]
    known = bench.state.cluster.plan("n1")
    assert known is not None
    assert bool(known.planned) == (landed and readable)
    assert bench.state.cluster.open_ends == (written is Written.FAILED)


def test_a_write_that_was_throttled_is_not_read_back(bench: Bench) -> None:
    ready(bench)
    sent = without_an_answer(bench, landed=False, readable=True)
    bench.cluster.server.faults.insert(0, bench.cluster.refuse("PATCH", "/gpupartitionplans/n1", code=429))
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.FAILED]
    assert sent == []


def test_a_plan_that_comes_back_is_refused_still(bench: Bench) -> None:
    """Its deletion made the state forget the refusal; its node must be closed, or nothing would plan its pods again."""
    ready(bench)
    refusal = bench.cluster.refuse("PATCH", "/gpupartitionplans/n1", code=403)
    writing = writer(bench)
    result = PlanningResult(node_changes=(change(item(0, 3)),))
    assert [o.written for o in writing.write(result, bench.state.cluster.snapshot())] == [Written.FAILED]
    plan_recreated(bench.cluster)
    bench.state.observe_plan("n1", None)
    bench.load()
    bench.cluster.server.faults.remove(refusal)
    assert not bench.state.cluster.open_ends
    (outcome,) = writing.write(result, bench.state.cluster.snapshot())
    assert (outcome.written, outcome.message, outcome.repeated) == (Written.FAILED, "injected fault", True)
    assert bench.state.cluster.plan_views()["n1"].write_refused == "injected fault"


def test_only_a_write_ends_the_back_off(bench: Bench) -> None:
    ready(bench)
    refusal = bench.cluster.refuse("PATCH", "/gpupartitionplans/n1", code=403)
    writing = writer(bench)
    result = PlanningResult(node_changes=(change(item(0, 3)),))
    for _ in range(5):
        writing.write(result, bench.state.cluster.snapshot())
        bench.clock.now += 60
    stale = bench.state.cluster.snapshot()
    bench.cluster.server.faults.remove(refusal)
    plan_edited(bench.cluster)
    bench.cluster.pin("n1")
    bench.cluster.server.faults.append(refusal)
    bench.load()
    assert [o.written for o in writing.write(result, stale)] == [Written.OVERTAKEN]
    assert [o.repeated for o in writing.write(result, bench.state.cluster.snapshot())] == [True]

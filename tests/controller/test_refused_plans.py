"""A plan that the API server refuses, or that is not sent in time: what loop, planner and pods make of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.actions.plan_writer import Outcome, Written, as_written
from controller.model.reasons import UnplacedReason
from controller.model.results import NodeChange, Placed, PlanningResult, Supply
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PlannerOptions
from controller.planning import plan as plan_pods
from tests.apiserver import Disconnect, Refuse
from tests.builders.models import A100
from tests.builders.objects import gpu, item, node, pod, status
from tests.controller.actions.test_reporter import missed, placed
from tests.controller.actions.writing import planned
from tests.controller.cluster import Bench
from tests.controller.loop_rig import LoopRig
from tests.controller.planner.builders import cluster, layout, mig, server
from tests.controller.planner.builders import pod as pod_of
from tests.drawn import examples

pytestmark = pytest.mark.slow

SENTENCE = "policy 'quiet' denied request: no writes on Sundays"


class Refusals:
    """Refuses the plans of some nodes, and counts what is sent to each."""

    def __init__(self, bench: Bench, *nodes: str) -> None:
        self.nodes = set(nodes)
        self.sent: list[str] = []
        bench.cluster.server.faults.append(self.fault)

    def fault(self, request: Any) -> Refuse | None:
        name = request.path.rpartition("/")[2]
        if request.method != "PATCH" or "/gpupartitionplans/" not in request.path or name == "status":
            return None
        self.sent.append(name)
        return Refuse(code=403, reason="Forbidden", message=SENTENCE) if name in self.nodes else None


@pytest.fixture
def rig(bench: Bench) -> LoopRig:
    """Two equal nodes with one uncut GPU each, the real planner, and living agents."""
    rig = LoopRig(bench)
    rig.answer = lambda snapshot: plan_pods(snapshot, PlannerOptions())
    for name in ("n1", "n2"):
        bench.cluster.node(node(name))
        bench.cluster.plan(name)
        uid = bench.cluster.get_node(name)["metadata"]["uid"]
        bench.cluster.agent_status(name, status(gpu(state="Unmanaged"), node_uid=uid))
    for moment in ("2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000002Z"):
        beat(rig, moment)
        bench.load()
    rig.settle()
    return rig


def beat(rig: LoopRig, moment: str) -> None:
    for name in ("n1", "n2"):
        rig.bench.cluster.beat(name, moment)


def at(seconds: float) -> str:
    moment = datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


BEAT_TURNS = 5
"""Each is two requests."""


def turns(rig: LoopRig, count: int, *, after: float = 1.0) -> None:
    for number in range(count):
        if number % BEAT_TURNS == 0:
            beat(rig, at(rig.bench.clock.now))
        rig.turn(after=after)


def spec_planned(rig: LoopRig, name: str) -> object:
    return rig.bench.cluster.get_plan(name)["spec"].get("planned")


def test_a_refused_node_is_planned_around_at_once(rig: LoopRig) -> None:
    refusals = Refusals(rig.bench, "n1")
    rig.bench.cluster.pod(pod())
    rig.turn()
    turns(rig, 11)
    assert refusals.sent == ["n1", "n2"]
    assert len(rig.snapshots) == 2
    assert spec_planned(rig, "n1") is None
    assert spec_planned(rig, "n2") is not None
    assert list(rig.bench.state.cluster.reservations().values()) == ["n2"]
    (decision,) = rig.loop.decisions()["pods"]
    assert (decision["outcome"], decision["node"]) == ("underWay", "n2")
    events = [(reason, message) for about, _, reason, message in rig.recorder.emitted if about == "Pod/p"]
    assert [message for reason, message in events if reason == "Planned"] == [events[-1][1]]
    assert "on node n2 " in events[-1][1]


def test_while_every_plan_is_refused_pods_get_the_server_s_message(rig: LoopRig) -> None:
    refusals = Refusals(rig.bench, "n1", "n2")
    rig.bench.cluster.pod(pod())
    rig.turn()
    turns(rig, 12)
    assert rig.bench.state.cluster.reservations() == {}
    value = rig.bench.metrics.registry.get_sample_value
    assert value("gpuplan_placed_pods", {"supply": "new"}) == 0
    assert value("gpuplan_unplaced_pods", {"reason": "Blocked"}) == 1
    (decision,) = rig.loop.decisions()["pods"]
    assert (decision["outcome"], decision["reason"]) == ("unplaced", "Blocked")
    assert f"The plan of nodes n1 and n2 could not be written: {SENTENCE}." in decision["message"]
    assert rig.bench.errors("write") == 2
    assert not rig.idle()
    turns(rig, examples(600))
    assert len(refusals.sent) <= 2 * 16
    refusals.nodes.clear()
    turns(rig, 75)
    assert rig.idle()
    assert (spec_planned(rig, "n1") is None) != (spec_planned(rig, "n2") is None)


def test_a_reservation_on_an_unwritten_plan_is_withdrawn_and_others_are_kept() -> None:
    result = PlanningResult(
        placed=(
            placed("a"),
            placed("b", Supply.EXISTING),
            placed("c", Supply.UNDER_WAY),
            replace(placed("d"), node="n2"),
        ),
        unplaced=(missed("e"),),
    )
    result = replace(result, counts=replace(result.counts, placed_new=2, unplaced=1))
    outcomes = [
        Outcome(node="n1", written=Written.FAILED, message=SENTENCE),
        Outcome(node="n2", written=Written.APPLIED),
    ]
    achieved = as_written(result, outcomes)
    assert [pod.key[1] for pod in achieved.placed] == ["b", "c", "d"]
    assert [pod.key[1] for pod in achieved.unplaced] == ["e", "a"]
    assert achieved.unplaced[1].reason is UnplacedReason.CHANGE_UNDER_WAY
    expected = f"The plan of node n1 was not written ({SENTENCE}). This pod is planned again."
    assert achieved.unplaced[1].message == expected
    assert (achieved.counts.placed_new, achieved.counts.unplaced) == (1, 2)


def test_a_plan_that_may_have_been_written_is_not_called_unwritten() -> None:
    outcomes = [Outcome(node="n1", written=Written.UNANSWERED, message="no answer")]
    (lost,) = as_written(PlanningResult(placed=(placed("a"),)), outcomes).unplaced
    assert lost.message.startswith("The plan of node n1 may not have been written (no answer). ")


@pytest.mark.parametrize("written", Written)
def test_only_plans_in_force_keep_their_pods(written: Written) -> None:
    result = PlanningResult(placed=(placed("a"),))
    kept = as_written(result, [Outcome(node="n1", written=written)]).placed
    assert bool(kept) == (written in (Written.APPLIED, Written.UNCHANGED))


@pytest.mark.parametrize(("readable", "landed"), [(True, True), (False, True), (False, False)])
def test_pods_of_a_plan_that_may_have_been_written_are_planned_on_no_other_node(
    rig: LoopRig, readable: bool, landed: bool
) -> None:
    broken = True

    def fault(request: Any) -> Disconnect | None:
        if not broken or not request.path.endswith("/gpupartitionplans/n1"):
            return None
        if request.method == "PATCH":
            return Disconnect(after_write=landed)
        return None if readable or request.method != "GET" else Disconnect()

    rig.bench.cluster.server.faults.append(fault)
    rig.bench.cluster.pod(pod())
    rig.turn()
    rig.turn(after=10)
    rig.loop.turn()  # before the watch brings anything
    broken = False
    turns(rig, 30)
    assert spec_planned(rig, "n1") is not None
    assert spec_planned(rig, "n2") is None
    assert list(rig.bench.state.cluster.reservations().values()) == ["n1"]
    assert rig.idle()


def test_the_planner_leaves_a_refused_node_out_but_deals_what_is_there() -> None:
    node_view, plan_view = server("node-1", mig(idle=[("1g.5gb", 0)]))
    refused = replace(plan_view, write_refused=SENTENCE)
    snapshot = cluster((node_view, refused), pending=[pod_of("a", "1g.5gb"), pod_of("b", "1g.5gb")])
    result = plan_pods(snapshot, PlannerOptions())
    assert result.node_changes == ()
    assert [(one.key[1], one.supply) for one in result.placed] == [("a", Supply.EXISTING)]
    assert [one.reason for one in result.unplaced] == [UnplacedReason.BLOCKED]
    assert SENTENCE in result.unplaced[0].message


def test_many_refused_nodes_make_one_clause() -> None:
    nodes = [server(f"node-{number}", mig()) for number in range(9)]
    refused = [(view, replace(plan, write_refused=f'"{plan.name}" is forbidden')) for view, plan in nodes]
    (missed_one,) = plan_pods(cluster(*refused, pending=[pod_of("a", "1g.5gb")]), PlannerOptions()).unplaced
    assert missed_one.message.count("is forbidden") == 1
    assert "The plan of nodes node-0, node-1, node-2 and 6 more could not be written" in missed_one.message


def test_repairs_of_a_refused_plan_wait_as_well() -> None:
    wanted = MigDesired(layout=layout(A100, ("4g.20gb", 0)))
    held = replace(mig(used=[("1g.5gb", 0)]), desired=wanted, settled=False, under_way=True)
    node_view, plan_view = server("node-1", held)
    assert len(plan_pods(cluster((node_view, plan_view)), PlannerOptions()).node_changes) == 1
    refused = replace(plan_view, write_refused=SENTENCE)
    assert plan_pods(cluster((node_view, refused)), PlannerOptions()).node_changes == ()


def many_plans(rig: LoopRig, count: int) -> list[str]:
    """So many changes in the next pass; each later one has those that are not written yet."""
    names = [f"m{number:02}" for number in range(count)]
    for name in names:
        rig.bench.cluster.node(node(name))
        rig.bench.cluster.plan(name)
        rig.bench.cluster.pod(pod(name))

    def answer(snapshot: Snapshot) -> PlanningResult:
        pods = [found for found in snapshot.pending if spec_planned(rig, found.name) is None]
        return PlanningResult(
            node_changes=tuple(
                NodeChange(node=found.name, gpus=(planned(item(0, 3)),), changed=(0,)) for found in pods
            ),
            placed=tuple(Placed(uid=found.uid, key=found.key, node=found.name, supply=Supply.NEW) for found in pods),
        )

    rig.answer = answer
    return names


def slow(rig: LoopRig, seconds: float) -> None:
    """The clock advances by so much with each plan that is written."""

    def fault(request: Any) -> None:
        if request.method == "PATCH" and "/gpupartitionplans/m" in request.path and "status" not in request.path:
            rig.bench.clock.now += seconds

    rig.bench.cluster.server.faults.append(fault)


def test_plans_that_are_not_sent_in_time_are_planned_again_at_once(rig: LoopRig) -> None:
    names = many_plans(rig, 40)
    slow(rig, 0.5)
    rig.turn()
    rig.turn(after=10)
    written = [name for name in names if spec_planned(rig, name) is not None]
    assert 6 <= len(written) < 20
    assert not rig.idle()
    kept = [entry["name"] for entry in rig.loop.decisions()["pods"] if entry["outcome"] == "underWay"]
    assert kept == written
    assert rig.bench.errors("write") == 0
    rig.turn()
    assert len(rig.snapshots) == 2
    assert sum(spec_planned(rig, name) is not None for name in names) > len(written)
    for _ in range(6):
        rig.turn()
    assert all(spec_planned(rig, name) is not None for name in names)

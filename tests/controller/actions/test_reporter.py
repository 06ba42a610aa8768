"""What is reported of a pass: Events once, metrics, and the document behind /decisions."""

import logging
from dataclasses import replace

import pytest

from controller.actions.plan_writer import Outcome, Written
from controller.actions.reporter import PLANNED_SECONDS, Reporter
from controller.model.reasons import UnplacedReason
from controller.model.results import (
    Counts,
    CutShort,
    Drained,
    NodeChange,
    NodeFailure,
    Placed,
    PlannerPhase,
    PlanningResult,
    PodFailure,
    Supply,
    Unplaced,
)
from controller.model.snapshot import Snapshot
from tests.builders.objects import SLICE, gpu, item, node, partition, pod, status
from tests.builders.views import pod_view
from tests.controller.actions.recorder import Recorder
from tests.controller.cluster import Bench


class ReporterDesk:
    """A reporter over a Bench's state."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.recorder = Recorder()
        self.reporter = Reporter(bench.environment, self.recorder)

    def report(self, *outcomes: Outcome, **result: object) -> list[tuple[str, str, str, str]]:
        snapshot = Snapshot(pending=tuple(pod_view(pod(name)) for name in ("a", "b", "c")))
        self.reporter.report(snapshot, replace(PlanningResult(), **result), outcomes, 0.25, why="1 pod")  # type: ignore[arg-type]
        return self.recorder.take()

    def value(self, name: str, **labels: str) -> float | None:
        return self.bench.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def desk(bench: Bench) -> ReporterDesk:
    return ReporterDesk(bench)


def missed(name: str, message: str = "no", reason: UnplacedReason = UnplacedReason.NO_CAPACITY) -> Unplaced:
    return Unplaced(uid=f"uid-{name}", key=("default", name), reason=reason, message=message)


def placed(name: str, supply: Supply = Supply.NEW) -> Placed:
    return Placed(uid=f"uid-{name}", key=("default", name), node="n1", supply=supply)


def test_a_pass_that_changed_nothing_is_logged_for_debugging_only(
    desk: ReporterDesk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="controller.actions.reporter"):
        for unplaced in ((missed("a"),), (missed("a"),), (missed("a"), missed("b"))):
            desk.report(unplaced=unplaced)

    assert [record.levelname for record in caplog.records] == ["INFO", "DEBUG", "INFO"]


def test_an_unplaced_pod_has_an_event_when_its_reason_changes(desk: ReporterDesk) -> None:
    assert desk.report(unplaced=(missed("a"),)) == [("Pod/a", "Warning", "NoCapacity", "no")]
    assert desk.report(unplaced=(missed("a"),)) == []
    assert desk.report(unplaced=(missed("a", "still no"),)) == []
    other = missed("a", "still no", UnplacedReason.BLOCKED)
    assert desk.report(unplaced=(other,)) == [("Pod/a", "Warning", "Blocked", "still no")]


def test_a_pod_has_an_event_when_a_gpu_is_drained_for_it_and_drains_are_counted_once(desk: ReporterDesk) -> None:
    waits = UnplacedReason.WAITS_FOR_RELEASE
    drained = Drained(
        uid="uid-a", key=("default", "a"), node="n1", gpu=0, partitions=("MIG-1",), holders=(), created=()
    )
    assert desk.report(unplaced=(missed("a", "all are in use", waits),)) == [
        ("Pod/a", "Warning", "WaitsForRelease", "all are in use")
    ]
    for news in ([("Pod/a", "Warning", "WaitsForRelease", "GPU 0 is drained")], []):
        assert desk.report(unplaced=(missed("a", "GPU 0 is drained", waits),), drained=(drained,)) == news
    assert (desk.value("gpuplan_drained_gpus"), desk.value("gpuplan_drains_total")) == (1, 1)
    other = replace(drained, node="n2", partitions=("MIG-2",))
    desk.report(unplaced=(missed("a", "another is drained", waits),), drained=(other,))
    assert (desk.value("gpuplan_drained_gpus"), desk.value("gpuplan_drains_total")) == (1, 2)
    desk.report()
    assert (desk.value("gpuplan_drained_gpus"), desk.value("gpuplan_drains_total")) == (0, 2)


def test_a_waiting_pod_keeps_its_event_without_any_pass(desk: ReporterDesk) -> None:
    bench = desk.bench
    for name in ("a", "b"):
        bench.cluster.pod(pod(name))
    bench.load()
    live = bench.state.cluster.pending()
    waiting = tuple(replace(missed(view.name), uid=view.uid) for view in live)
    desk.reporter.report(Snapshot(pending=live), replace(PlanningResult(), unplaced=waiting), (), 0.25, why="1 pod")
    desk.recorder.take()
    bench.state.observe_pod(("default", "b"), None)
    bench.clock.now += 601
    desk.reporter.follow()
    assert desk.recorder.take() == [("Pod/a", "Warning", "NoCapacity", "no")]


def test_a_pod_of_mps_slices_of_another_user_is_warned_and_planned(desk: ReporterDesk) -> None:
    requests = {"nvidia.com/gpu-10gb": "1"}
    users = {"a": {"runAsUser": 7}, "b": {"runAsUser": 1000}, "c": {}}
    pending = tuple(pod_view(pod(name, requests=requests, securityContext=user)) for name, user in users.items())
    result = replace(PlanningResult(), placed=tuple(placed(name) for name in users))
    reporter = Reporter(desk.bench.environment, desk.recorder, mps_user_id=1000)
    reporter.report(Snapshot(pending=pending), result, (), 0.25, why="1 pod")
    warned = [about for about, _, reason, _ in desk.recorder.emitted if reason == "MPSUser"]
    assert warned == ["Pod/a", "Pod/c"]
    assert "runAsUser: 1000" in next(message for _, _, reason, message in desk.recorder.emitted if reason == "MPSUser")


def test_a_pod_that_waits_for_its_gates_is_not_warned(desk: ReporterDesk) -> None:
    (events,) = desk.report(unplaced=(missed("a", "gated", UnplacedReason.SCHEDULING_GATED),))
    assert events == ("Pod/a", "Normal", "SchedulingGated", "gated")


def test_a_pod_that_comes_back_to_the_queue_gets_its_event_again(desk: ReporterDesk) -> None:
    desk.report(unplaced=(missed("a"),))
    desk.report()
    assert len(desk.report(unplaced=(missed("a"),))) == 1


def test_a_pod_that_waits_for_its_partitions_gets_an_event_and_one_that_has_them_soon_does_not(
    desk: ReporterDesk,
) -> None:
    assert desk.report(placed=(placed("a"), placed("b", Supply.EXISTING), placed("c", Supply.UNDER_WAY))) == []
    desk.bench.clock.now += PLANNED_SECONDS - 0.1
    assert desk.report(placed=(placed("a", Supply.UNDER_WAY), placed("c", Supply.EXISTING))) == []
    desk.bench.clock.now += 0.1
    words = f"Creating 1 {SLICE} on node n1 for this pod."
    assert desk.report(placed=(placed("a", Supply.UNDER_WAY), placed("c", Supply.EXISTING))) == [
        ("Pod/a", "Normal", "Planned", words)
    ]
    assert desk.report(placed=(placed("a", Supply.UNDER_WAY), placed("c", Supply.EXISTING))) == []


def test_a_pod_that_is_bound_within_seconds_has_no_event_of_what_was_planned(desk: ReporterDesk) -> None:
    desk.bench.cluster.pod(pod("a"))
    desk.bench.load()
    desk.report(placed=(placed("a"),))
    desk.bench.cluster.bind("a", "n1")
    desk.bench.load()
    desk.bench.clock.now += PLANNED_SECONDS
    desk.reporter.follow()
    assert desk.recorder.take() == []


def test_what_a_plan_was_written_for(desk: ReporterDesk) -> None:
    desk.bench.cluster.node(node("n1"))
    desk.bench.cluster.plan("n1", planned={"gpus": [item(0, 3)]})
    desk.bench.load()
    written = Outcome(node="n1", written=Written.APPLIED)
    change = (NodeChange(node="n1", gpus=(), changed=(0,)),)
    assert desk.report(written, placed=(placed("a"),), node_changes=change)[-1][3] == (
        "Repartitioning GPU 0 for 1 pending pod."
    )
    assert (
        desk.report(written, node_changes=change)[-1][3] == "Updated the plan of GPU 0 to match the partitions in use."
    )


def test_a_written_plan_has_an_event_a_count_and_a_duration(desk: ReporterDesk) -> None:
    bench = desk.bench
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1", planned={"gpus": [item(0, 3)]})
    bench.load()
    events = desk.report(
        Outcome(node="n1", written=Written.APPLIED, seconds=0.1),
        Outcome(node="n2", written=Written.FAILED, message="away"),
        placed=(placed("a"), placed("b")),
        node_changes=(NodeChange(node="n1", gpus=(), changed=(0, 2)),),
    )
    assert events[-1] == (
        "GPUPartitionPlan/n1",
        "Normal",
        "PlanWritten",
        "Repartitioning GPUs 0 and 2 for 2 pending pods.",
    )
    assert desk.value("gpuplan_plans_applied_total") == 1
    assert desk.value("gpuplan_plan_apply_duration_seconds_sum") == 0.1
    assert desk.value("gpuplan_errors_total", stage="write") == 1
    desk.reporter.follow()
    assert desk.value("gpuplan_plan_to_ready_duration_seconds_count") == 0
    bench.clock.now += 12
    bench.cluster.beat("n1", "2026-01-01T12:00:00.000000Z")
    bench.cluster.confirm("n1")
    bench.load()
    desk.reporter.follow()
    desk.reporter.follow()
    assert desk.value("gpuplan_plan_to_ready_duration_seconds_count") == 1
    assert desk.value("gpuplan_plan_to_ready_duration_seconds_sum") == 12


def test_a_plan_that_could_not_be_written_has_an_event_once_per_text(desk: ReporterDesk) -> None:
    desk.bench.cluster.node(node("n1"))
    desk.bench.cluster.plan("n1")
    desk.bench.load()
    (event,) = desk.report(Outcome(node="n1", written=Written.FAILED, message="denied by policy p"))
    assert event[:3] == ("GPUPartitionPlan/n1", "Warning", "PlanFailed")
    assert event[3].startswith("The plan could not be written (denied by policy p): it stays as it is")
    assert desk.report(Outcome(node="n1", written=Written.FAILED, message="denied by policy p", repeated=True)) == []


def test_a_server_that_words_each_refusal_differently_makes_one_event(desk: ReporterDesk) -> None:
    desk.bench.cluster.node(node("n1"))
    desk.bench.cluster.plan("n1")
    desk.bench.load()
    for port in (40001, 40002):
        desk.report(Outcome(node="n1", written=Written.FAILED, message=f"webhook: read tcp 10.0.0.1:{port}: refused"))
    assert len(desk.recorder.series) == 2
    assert len({*desk.recorder.series}) == 1
    assert None not in desk.recorder.series


def test_a_node_that_was_left_out_has_an_event_once_a_metric_and_its_traceback_in_the_log(
    desk: ReporterDesk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.bench.cluster.node(node("n1"))
    desk.bench.cluster.plan("n1")
    desk.bench.load()
    failed = (NodeFailure(node="n1", message="KeyError: 'x'", trace="Traceback …"),)
    (event,) = desk.report(failures=failed)
    assert event[:3] == ("GPUPartitionPlan/n1", "Warning", "PlanFailed")
    assert event[3].startswith("Planning this node failed (KeyError: 'x'): its plan stays as it is")
    assert desk.report(failures=failed) == []
    assert desk.value("gpuplan_failed_nodes") == 1
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "node n1 is left out, planning it failed: Traceback …"
    ]
    assert desk.report() == []
    assert desk.value("gpuplan_failed_nodes") == 0
    assert len(desk.report(failures=failed)) == 1


def test_a_bound_pod_that_was_set_aside_has_an_event_once_a_metric_and_its_traceback_in_the_log(
    desk: ReporterDesk, caplog: pytest.LogCaptureFixture
) -> None:
    failed = (
        PodFailure(uid="u1", key=("team", "a"), message="KeyError: 'x'", trace="Traceback …"),
        PodFailure(uid="u2", key=("team", "b"), message="KeyError: 'x'", trace="Traceback …"),
    )
    explained = Unplaced(
        uid="u2", key=("team", "b"), reason=UnplacedReason.NOT_SERVED, message="Planning this pod failed."
    )
    event, reason = sorted(desk.report(pod_failures=failed, unplaced=(explained,)))
    assert reason[:3] == ("Pod/b", "Warning", "NotServed")
    assert event[:3] == ("Pod/a", "Warning", "PlanFailed")
    assert event[3].startswith("Planning with this pod failed (KeyError: 'x'): what it holds counts")
    assert desk.report(pod_failures=failed, unplaced=(explained,)) == []
    assert desk.value("gpuplan_set_aside_pods") == 2
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "pod team/a is set aside, planning with it failed: Traceback …",
        "pod team/b is set aside, planning with it failed: Traceback …",
    ]
    assert desk.report() == []
    assert desk.value("gpuplan_set_aside_pods") == 0


def test_a_pass_that_was_cut_short_is_counted(desk: ReporterDesk) -> None:
    assert desk.value("gpuplan_passes_cut_short_total", reason="work") == 0
    desk.report(cut_short=CutShort.WORK)
    desk.report(cut_short=CutShort.TIME)
    desk.report()
    assert desk.value("gpuplan_passes_cut_short_total", reason="work") == 1
    assert desk.value("gpuplan_passes_cut_short_total", reason="time") == 1


def test_what_a_pass_could_not_do_is_logged_once(desk: ReporterDesk, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        desk.report(remarks=("The bound could not be computed.",))

    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["The bound could not be computed."]


def test_the_numbers_of_a_pass(desk: ReporterDesk) -> None:
    counts = Counts(placed_new=1, placed_by=((PlannerPhase.GREEDY, 1),))
    desk.report(unplaced=(missed("a"), missed("b")), placed=(placed("c"),), bound=2, counts=counts)
    assert desk.value("gpuplan_passes_total") == 1
    assert desk.value("gpuplan_planning_duration_seconds_sum") == 0.25
    assert desk.value("gpuplan_placed_pods", supply="new") == 1
    assert {phase: desk.value("gpuplan_phase_placed_pods_total", phase=phase) for phase in PlannerPhase} == {
        **dict.fromkeys(PlannerPhase, 0),
        PlannerPhase.GREEDY: 1,
    }
    desk.report()
    assert desk.value("gpuplan_phase_placed_pods_total", phase="greedy") == 1  # a scrape may come later than a pass


def test_pods_that_ended_since_the_last_pass_are_counted_no_more(desk: ReporterDesk) -> None:
    bench = desk.bench
    for name in ("a", "b", "c"):
        bench.cluster.pod(pod(name))
    bench.load()
    uids = {view.name: view.uid for view in bench.state.cluster.pending()}
    desk.report(
        unplaced=tuple(replace(missed(name), uid=uids[name]) for name in ("a", "b")),
        placed=(replace(placed("c", Supply.EXISTING), uid=uids["c"]),),
    )
    assert desk.value("gpuplan_unplaced_pods", reason="NoCapacity") == 2
    assert desk.value("gpuplan_pending_pods", resource=SLICE, reason="NoCapacity") == 2
    assert desk.value("gpuplan_pending_pods", resource=SLICE, reason="Placed") == 1
    bench.clock.now += 30
    assert desk.value("gpuplan_oldest_pending_pod_seconds", resource=SLICE) == 30
    for name in ("a", "b", "c"):
        bench.state.observe_pod(("default", name), None)
    assert desk.value("gpuplan_unplaced_pods", reason="NoCapacity") == 0
    assert desk.value("gpuplan_pending_pods", resource=SLICE, reason="NoCapacity") is None
    assert desk.value("gpuplan_oldest_pending_pod_seconds", resource=SLICE) is None


def test_the_decisions_document(desk: ReporterDesk) -> None:
    assert desk.reporter.decisions.document(idle=False, under_way=[])["pass"] == 0
    because = replace(missed("c", "because"), detail="of n1")
    desk.report(unplaced=(because,), placed=(placed("b"), placed("a", Supply.EXISTING)))
    document = desk.reporter.decisions.document(idle=True, under_way=["n2", "n1"])
    assert {key: document[key] for key in ("pass", "finishedAt", "idle", "underWay")} == {
        "pass": 1,
        "finishedAt": "2026-01-01T12:00:00Z",
        "idle": True,
        "underWay": ["n1", "n2"],
    }
    empty = {"namespace": "default", "node": "", "reason": "", "message": ""}
    assert document["pods"] == [
        {**empty, "name": "a", "uid": "uid-a", "outcome": "placed", "node": "n1"},
        {**empty, "name": "b", "uid": "uid-b", "outcome": "underWay", "node": "n1"},
        {
            **empty,
            "name": "c",
            "uid": "uid-c",
            "outcome": "unplaced",
            "reason": "NoCapacity",
            "message": "because of n1",
        },
    ]


def test_gauges_of_the_cluster_are_read_at_each_scrape(desk: ReporterDesk) -> None:
    bench = desk.bench
    bench.cluster.node(node("n1"))
    bench.cluster.plan("n1")
    parts = [partition(0), partition(1), partition(2, "Used"), partition(9, resource="nvidia.com/gpu-10gb")]
    bench.cluster.agent_status("n1", status(gpu(partitions=parts)))
    bench.cluster.pod(pod("a"))
    bench.cluster.pod(pod("b", unschedulable=False))
    bench.load()
    assert desk.value("gpuplan_pending_pods", resource=SLICE, reason="Undecided") is None
    desk.report()
    assert desk.value("gpuplan_pending_pods", resource=SLICE, reason="Undecided") == 2
    assert desk.value("gpuplan_partitions", profile="1g.10gb", state="Free") == 2
    assert desk.value("gpuplan_partitions", profile="1g.10gb", state="Used") == 1
    assert desk.value("gpuplan_partitions", profile="gpu-10gb", state="Free") == 1
    assert desk.value("gpuplan_batch_window_open") == 1
    bench.state.observe_plan("n1", None)
    bench.state.observe_pod(("default", "a"), None)
    assert desk.value("gpuplan_pending_pods", resource=SLICE, reason="Undecided") == 1
    assert desk.value("gpuplan_partitions", profile="1g.10gb", state="Free") is None

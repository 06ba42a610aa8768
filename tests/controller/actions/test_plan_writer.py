"""Writing plans against the API server: what is written, and every way in which a write can be overtaken."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from controller.actions.plan_writer import Outcome, Writer, Written
from controller.api import paths
from controller.api.plan_items import desired_of
from controller.api.plans import PlanReading
from controller.api.pods import read_pod
from controller.model.results import NodeChange, Placed, PlanningResult, Supply
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PlannedGpu
from crds.v1alpha1.spec import GpuItem
from kube import apply
from partitioning.layouts import Layout
from partitioning.models import model_for_name
from sandbox.apiserver import Disconnect
from tests.builders.objects import H100, SLICE, Json, gpu, item, node, partition, pod, status
from tests.controller.cluster import Bench, Cluster


def planned(raw: Json) -> PlannedGpu:
    desired = desired_of(GpuItem.read(raw), model=model_for_name(H100), memory_mib=81559)
    return PlannedGpu(index=raw["index"], uuid=raw["uuid"], desired=desired)


def change(*items: Json, name: str = "n1", changed: tuple[int, ...] | None = None) -> NodeChange:
    indexes = tuple(raw["index"] for raw in items) if changed is None else changed
    return NodeChange(node=name, gpus=tuple(planned(raw) for raw in items), changed=indexes)


def writer(bench: Bench) -> Writer:
    return Writer(bench.environment)


def write(
    bench: Bench, *changes: NodeChange, snapshot: Snapshot | None = None, placed: Iterable[Placed] = ()
) -> list[Outcome]:
    """Write these changes, planned from this snapshot, without one from what the state knows now."""
    result = PlanningResult(node_changes=changes, placed=tuple(placed))
    return list(writer(bench).write(result, snapshot or bench.state.snapshot()))


def ready(bench: Bench, **spec: Any) -> None:
    """One enabled node and its plan, known to the state."""
    bench.cluster.node(node())
    bench.cluster.plan(**spec)
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged", partitions=[partition(0)])))
    bench.load()


def test_writes_planned_and_nothing_else(bench: Bench) -> None:
    pinned = {"index": 1, "whole": {}}
    ready(bench, gpus=[pinned])
    assert [o.written for o in write(bench, change(item(0, 3, 5)))] == [Written.APPLIED]
    raw = bench.cluster.get_plan()
    assert raw["spec"] == {"nodeName": "n1", "gpus": [pinned], "planned": {"gpus": [item(0, 3, 5)]}}
    owners = [f for f in raw["metadata"]["managedFields"] if f["manager"] == "gpuplan-controller"]
    assert [(f["operation"], f["fieldsV1"]) for f in owners] == [("Apply", {"f:spec": {"f:planned": {}}})]


def test_the_state_knows_at_once_and_needs_no_pass_for_it(bench: Bench) -> None:
    ready(bench)
    bench.window.take()
    write(bench, change(item(0, 3)))
    known = bench.state.plan("n1")
    assert isinstance(known, PlanReading)
    assert known.resource_version == bench.cluster.get_plan()["metadata"]["resourceVersion"]
    assert [entry.index for entry in known.planned] == [0]
    assert not bench.window.open


def test_what_the_watch_brings_of_our_own_write_is_not_parsed_again(bench: Bench) -> None:
    ready(bench)
    write(bench, change(item(0, 3)))
    known = bench.state.plan("n1")
    read = bench.state.read_plan(bench.cluster.get_plan())
    assert read is known is not None
    view = bench.state.plan_views()["n1"]
    bench.state.observe_plan("n1", read)
    assert bench.state.plan_views()["n1"] is view


def test_an_unchanged_plan_is_not_written(bench: Bench) -> None:
    ready(bench)
    write(bench, change(item(0, 3)))
    before = bench.cluster.get_plan()["metadata"]["resourceVersion"]
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.UNCHANGED]
    assert bench.cluster.get_plan()["metadata"]["resourceVersion"] == before


def test_an_item_that_did_not_change_is_sent_as_it_is_stored(bench: Bench) -> None:
    odd = {"index": 1, "uuid": item(1)["uuid"], "mig": {"instances": [{"profile": "1g.10gb", "count": 1}]}}
    ready(bench, planned={"gpus": [odd]})
    kept = PlannedGpu(index=1, uuid="", desired=planned(item(1, 0)).desired)
    outcome = write(bench, NodeChange(node="n1", gpus=(planned(item(0, 3)), kept), changed=(0,)))
    assert outcome[0].written is Written.APPLIED
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3), odd]


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
        failed, _applied = writing.write(result, bench.state.snapshot())
        assert failed.written is Written.FAILED
        assert failed.message.startswith("ValidationError: ")
        bench.clock.now += 60  # its back-off
    assert bench.cluster.get_plan("n2")["spec"]["planned"]["gpus"] == [item(0, 3)]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_pinned_indexes_are_left_out(bench: Bench) -> None:
    ready(bench, gpus=[{"index": 1, "whole": {}}], planned={"gpus": [item(1, 0)]})
    write(bench, change(item(0, 3), item(1, 0), changed=(0,)))
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]


def test_a_status_write_in_between_is_not_in_the_way(bench: Bench) -> None:
    ready(bench)
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged", partitions=[partition(0)]), observed=1))
    bench.cluster.agent_status("n1", status(gpu(state="Ready", partitions=[partition(0)])))
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.APPLIED]


def partition_taken(cluster: Cluster) -> None:
    cluster.agent_status("n1", status(gpu(state="Unmanaged", partitions=[partition(0, "Used")])))


def plan_edited(cluster: Cluster) -> None:
    cluster.pin("n1", {"index": 0, "whole": {}})


def plan_deleted(cluster: Cluster) -> None:
    apply.delete(cluster.api, paths.plan("n1"))


def plan_recreated(cluster: Cluster) -> None:
    plan_deleted(cluster)
    cluster.plan()


@pytest.mark.parametrize("overtake", [partition_taken, plan_edited, plan_deleted, plan_recreated])
@pytest.mark.parametrize("seen", [False, True], ids=["before the watch", "after the watch"])
def test_what_a_decision_rests_on_has_changed(bench: Bench, overtake: Callable[[Cluster], None], seen: bool) -> None:
    ready(bench)
    snapshot = bench.state.snapshot()
    overtake(bench.cluster)
    if seen:
        bench.load()
    outcomes = write(bench, change(item(0, 3)), snapshot=snapshot)
    assert [o.written for o in outcomes] == [Written.OVERTAKEN]
    if overtake is plan_deleted:
        assert bench.cluster.plans() == []
    else:
        assert "planned" not in bench.cluster.get_plan()["spec"]


HOLDER = pod("holder", unschedulable=False)
UNREADABLE: Json = {"containers": [{"name": "main", "resources": {"limits": {SLICE: "some"}}}]}


def bound_to(found: Bench, raw: Json, name: str = "n1") -> None:
    """The watch brings the binding of this pod, on which the agent has not reported yet."""
    raw = raw | {"spec": raw["spec"] | {"nodeName": name}}
    found.state.observe_pod(("default", raw["metadata"]["name"]), read_pod(raw))


@pytest.mark.parametrize(
    ("bound", "written"),
    [
        (pod("holder"), Written.OVERTAKEN),
        (pod("placed"), Written.APPLIED),  # this very result counts on it there
        (pod("known"), Written.APPLIED),  # bound before the snapshot
        (pod("plain", requests={"cpu": "1"}), Written.APPLIED),
        (HOLDER | {"spec": UNREADABLE}, Written.OVERTAKEN),  # holds nobody knows what
    ],
    ids=["holder", "placed", "known", "without GPUs", "unreadable"],
)
@pytest.mark.parametrize("refused_once", [False, True])
def test_a_pod_bound_since_the_snapshot_voids_the_write(
    bench: Bench, bound: Json, written: Written, refused_once: bool
) -> None:
    ready(bench)
    bound_to(bench, pod("known"))
    snapshot = bench.state.snapshot()
    if refused_once:  # the pod is bound while the first attempt is under way, which a status write overtakes
        bench.cluster.agent_status("n1", status(gpu(state="Ready", partitions=[partition(0)])))
        bench.cluster.server.faults.append(lambda _: bound_to(bench, bound))
    else:
        bound_to(bench, bound)
    placed = Placed(uid="uid-placed", key=("default", "placed"), node="n1", supply=Supply.EXISTING)
    assert [o.written for o in write(bench, change(item(0, 3)), snapshot=snapshot, placed=[placed])] == [written]
    assert ("planned" in bench.cluster.get_plan()["spec"]) is (written is Written.APPLIED)


def test_a_pod_bound_to_another_node_than_the_result_placed_it_voids_the_write(bench: Bench) -> None:
    ready(bench)
    snapshot = bench.state.snapshot()
    bound_to(bench, pod("placed"))
    placed = Placed(uid="uid-placed", key=("default", "placed"), node="n2", supply=Supply.NEW)
    outcomes = write(bench, change(item(0, 3)), snapshot=snapshot, placed=[placed])
    assert [o.written for o in outcomes] == [Written.OVERTAKEN]


def test_a_pod_that_ends_does_not_void_the_write(bench: Bench) -> None:
    ready(bench)
    bench.cluster.agent_status("n1", status(gpu(partitions=[partition(0, "Used"), partition(1, "Used")])))
    bound_to(bench, pod("known"))
    bench.load()
    snapshot = bench.state.snapshot()
    bench.cluster.agent_status("n1", status(gpu(partitions=[partition(1, "Used")])))
    bench.state.observe_pod(("default", "known"), None)
    bench.load()
    assert [o.written for o in write(bench, change(item(0, 1)), snapshot=snapshot)] == [Written.APPLIED]


@pytest.mark.parametrize("spec", [{"mode": "Manual"}, {"paused": True}])
def test_manual_and_paused_plans_are_left_alone(bench: Bench, spec: Json) -> None:
    ready(bench, **spec)
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.NOT_OURS]
    assert "planned" not in bench.cluster.get_plan()["spec"]


def test_a_plan_of_a_node_that_is_not_enabled_any_more(bench: Bench) -> None:
    ready(bench)
    snapshot = bench.state.snapshot()
    label = {"metadata": {"labels": {"gpuplan.dev/gpu-partitioning": None}}}
    apply.merge_patch(bench.cluster.api, paths.node("n1"), label)
    bench.load()
    assert [o.written for o in write(bench, change(item(0, 3)), snapshot=snapshot)] == [Written.NOT_OURS]


def test_who_does_not_lead_writes_nothing(bench: Bench) -> None:
    ready(bench)
    bench.leads = False
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.NOT_OURS]


@pytest.mark.parametrize("spec", [{"mode": "Manual"}, {"paused": True}, {}])
def test_pinned_items_are_dropped_in_every_mode(bench: Bench, spec: Json) -> None:
    ready(bench, gpus=[{"index": 1, "whole": {}}], planned={"gpus": [item(0, 3), item(1, 0)]}, **spec)
    reading = bench.state.plan("n1")
    assert reading is not None
    assert reading.stale_items == (1,)
    assert writer(bench).drop_pinned(reading).written is Written.APPLIED
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    again = bench.state.plan("n1")
    assert again is not None
    assert again.stale_items == ()


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
    known = bench.state.plan("n1")
    assert known is not None
    assert bool(known.planned) == (landed and readable)
    assert bench.state.open_ends == (written is Written.FAILED)


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
    assert [o.written for o in writing.write(result, bench.state.snapshot())] == [Written.FAILED]
    plan_recreated(bench.cluster)
    bench.state.observe_plan("n1", None)
    bench.load()
    bench.cluster.server.faults.remove(refusal)
    assert not bench.state.open_ends
    (outcome,) = writing.write(result, bench.state.snapshot())
    assert (outcome.written, outcome.message, outcome.repeated) == (Written.FAILED, "injected fault", True)
    assert bench.state.plan_views()["n1"].write_refused == "injected fault"


def test_only_a_write_ends_the_back_off(bench: Bench) -> None:
    ready(bench)
    refusal = bench.cluster.refuse("PATCH", "/gpupartitionplans/n1", code=403)
    writing = writer(bench)
    result = PlanningResult(node_changes=(change(item(0, 3)),))
    for _ in range(5):
        writing.write(result, bench.state.snapshot())
        bench.clock.now += 60
    stale = bench.state.snapshot()
    bench.cluster.server.faults.remove(refusal)
    plan_edited(bench.cluster)
    bench.cluster.pin("n1")
    bench.cluster.server.faults.append(refusal)
    bench.load()
    assert [o.written for o in writing.write(result, stale)] == [Written.OVERTAKEN]
    assert [o.repeated for o in writing.write(result, bench.state.snapshot())] == [True]

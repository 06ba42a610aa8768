"""Writes of plans that something overtakes: the plan, its status, or a pod that is bound since the snapshot."""

from collections.abc import Callable

import pytest

from controller.actions.plan_writer import Written
from controller.api.pods import read_pod
from controller.model.results import Placed, Supply
from tests.builders.objects import SLICE, Json, gpu, item, partition, pod, status
from tests.controller.actions.writing import change, plan_deleted, plan_edited, plan_recreated, ready, write
from tests.controller.cluster import ApiCluster, Bench


def test_a_status_write_in_between_is_not_in_the_way(bench: Bench) -> None:
    ready(bench)
    bench.cluster.agent_status("n1", status(gpu(state="Unmanaged", partitions=[partition(0)]), observed=1))
    bench.cluster.agent_status("n1", status(gpu(state="Ready", partitions=[partition(0)])))
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.APPLIED]


def partition_taken(cluster: ApiCluster) -> None:
    cluster.agent_status("n1", status(gpu(state="Unmanaged", partitions=[partition(0, "Used")])))


@pytest.mark.parametrize("overtake", [partition_taken, plan_edited, plan_deleted, plan_recreated])
@pytest.mark.parametrize("seen", [False, True], ids=["before the watch", "after the watch"])
def test_what_a_decision_rests_on_has_changed(bench: Bench, overtake: Callable[[ApiCluster], None], seen: bool) -> None:
    ready(bench)
    snapshot = bench.state.cluster.snapshot()
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
        (HOLDER | {"spec": UNREADABLE}, Written.OVERTAKEN),  # what it holds is unknown
    ],
    ids=["holder", "placed", "known", "without GPUs", "unreadable"],
)
@pytest.mark.parametrize("refused_once", [False, True])
def test_a_pod_bound_since_the_snapshot_voids_the_write(
    bench: Bench, bound: Json, written: Written, refused_once: bool
) -> None:
    ready(bench)
    bound_to(bench, pod("known"))
    snapshot = bench.state.cluster.snapshot()
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
    snapshot = bench.state.cluster.snapshot()
    bound_to(bench, pod("placed"))
    placed = Placed(uid="uid-placed", key=("default", "placed"), node="n2", supply=Supply.NEW)
    outcomes = write(bench, change(item(0, 3)), snapshot=snapshot, placed=[placed])
    assert [o.written for o in outcomes] == [Written.OVERTAKEN]


def test_a_pod_that_ends_does_not_void_the_write(bench: Bench) -> None:
    ready(bench)
    bench.cluster.agent_status("n1", status(gpu(partitions=[partition(0, "Used"), partition(1, "Used")])))
    bound_to(bench, pod("known"))
    bench.load()
    snapshot = bench.state.cluster.snapshot()
    bench.cluster.agent_status("n1", status(gpu(partitions=[partition(1, "Used")])))
    bench.state.observe_pod(("default", "known"), None)
    bench.load()
    assert [o.written for o in write(bench, change(item(0, 1)), snapshot=snapshot)] == [Written.APPLIED]

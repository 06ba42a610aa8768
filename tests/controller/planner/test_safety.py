"""What a plan must leave alone: used and unknown partitions, pinned and unsettled GPUs, nodes of others."""

from dataclasses import replace

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, MigDesired, NodeView, PartitionView, PlanView, PodView
from controller.planning import plan
from tests.builders.models import A100
from tests.controller.planner.builders import cluster, holder, layout, mig, mps, node, plan_of, pod, server
from tests.controller.planner.checker import check

WANTS_7G = pod("wants-7g", "7g.40gb")
WANTS_1G = pod("wants-1g", "1g.5gb")


def planned(snapshot: Snapshot) -> PlanningResult:
    result = plan(snapshot)
    check(snapshot, result)
    return result


def only_layout(result: PlanningResult) -> str:
    ((item,),) = (change.gpus for change in result.node_changes)
    assert isinstance(item.desired, MigDesired)
    return str(item.desired.layout)


def with_state(gpu: GpuView, state: str) -> GpuView:
    return replace(gpu, partitions=tuple(replace(part, state=state, pod="") for part in gpu.partitions))


@pytest.mark.parametrize("state", ["Used", "Unknown", "Changing", "Pending"])
def test_only_what_is_proved_free_may_be_cut(state: str) -> None:
    gpu = with_state(mig(idle=[("1g.5gb", 0)]), state)

    assert planned(cluster(server("node-1", gpu), pending=[WANTS_7G])).node_changes == ()


def test_a_free_partition_is_cut_where_it_is_in_the_way() -> None:
    result = planned(cluster(server("node-1", mig(idle=[("1g.5gb", 0)])), pending=[WANTS_7G]))

    assert only_layout(result) == "7g.40gb at 0"
    assert result.counts.partitions_destroyed == 1


def test_a_bound_pod_that_the_status_does_not_show_freezes_its_resource_on_the_node() -> None:
    gpus = mig(0, idle=[("1g.5gb", 0)]), mig(1, idle=[("1g.5gb", 0)])
    unseen = holder("node-1", "1g.5gb")

    assert planned(cluster(server("node-1", *gpus), pods=[unseen], pending=[WANTS_7G])).node_changes == ()
    elsewhere = holder("node-2", "1g.5gb")
    assert planned(cluster(server("node-1", *gpus), pods=[elsewhere], pending=[WANTS_7G])).node_changes != ()


def test_a_holder_that_the_status_names_freezes_nothing_else() -> None:
    gpus = mig(0, used=[("1g.5gb", 0)]), mig(1, idle=[("1g.5gb", 0)])
    result = planned(cluster(server("node-1", *gpus), pods=[holder("node-1", "1g.5gb")], pending=[WANTS_7G]))

    assert [change.changed for change in result.node_changes] == [(1,)]


def test_a_pinned_gpu_belongs_to_users() -> None:
    result = planned(cluster(server("node-1", mig(pinned=True)), pending=[WANTS_1G]))

    assert result.node_changes == ()
    assert result.unplaced[0].reason is UnplacedReason.BLOCKED
    assert "GPU 0 on node node-1 is fixed in spec.gpus of gpupartitionplan/node-1" in result.unplaced[0].message


def test_an_unsettled_gpu_is_frozen_and_its_neighbour_is_not() -> None:
    changing = mig(0, desired=MigDesired(layout=layout(A100, ("7g.40gb", 0))), settled=False, under_way=True)

    only = planned(cluster(server("node-1", changing), pending=[WANTS_1G]))
    assert only.node_changes == ()
    assert only.unplaced[0].reason is UnplacedReason.CHANGE_UNDER_WAY
    assert only.unplaced[0].reason.in_flight
    with_another = planned(cluster(server("node-1", changing, mig(1)), pending=[WANTS_1G]))
    assert [change.changed for change in with_another.node_changes] == [(1,)]
    assert with_another.node_changes[0].gpus[0].desired == changing.desired, "the list is complete"


def changed(where: tuple[NodeView, PlanView], **more: object) -> tuple[NodeView, PlanView]:
    """The server with fields of its node or its plan replaced."""
    view, plan_view = where
    node_fields = {key: value for key, value in more.items() if key in NodeView.__slots__}
    plan_fields = {key: value for key, value in more.items() if key not in NodeView.__slots__}
    return replace(view, **node_fields), replace(plan_view, **plan_fields)  # type: ignore[arg-type]  # by field name


@pytest.mark.parametrize(
    ("difference", "reason", "words"),
    [
        pytest.param({"partitioning": None}, UnplacedReason.BLOCKED, "gpuplan.dev/gpu-partitioning", id="no label"),
        pytest.param({"partitioning": "mps"}, UnplacedReason.BLOCKED, "serves MPS slices only", id="labelled for MPS"),
        pytest.param(
            {"mode": "Manual"},
            UnplacedReason.BLOCKED,
            "Add the partition to gpupartitionplan/node-1, or ask its owner.",
            id="manual",
        ),
        pytest.param({"paused": True}, UnplacedReason.BLOCKED, "spec.paused", id="paused"),
        pytest.param(
            {"labels": {"gpuplan.dev/driver": "closed"}}, UnplacedReason.BLOCKED, "works on the driver", id="held off"
        ),
        pytest.param({"ready": False}, UnplacedReason.BLOCKED, "not ready", id="node not ready"),
        pytest.param(
            {"agent_alive": False}, UnplacedReason.AWAITING_AGENT, "has stopped responding", id="agent silent"
        ),
        pytest.param({"gpus": ()}, UnplacedReason.AWAITING_AGENT, "node-1", id="nothing reported"),
        pytest.param({"node_uid": "older"}, UnplacedReason.AWAITING_AGENT, "node-1", id="status of an earlier node"),
    ],
)
def test_a_node_that_is_left_out_has_a_reason(
    difference: dict[str, object], reason: UnplacedReason, words: str
) -> None:
    result = planned(cluster(changed(server("node-1", mig()), **difference), pending=[WANTS_1G]))

    assert result.node_changes == ()
    assert result.unplaced[0].reason is reason
    assert words in result.unplaced[0].message


def test_an_enabled_node_without_a_plan_is_waited_for() -> None:
    snapshot = Snapshot(nodes=(node("node-1"),), pending=(WANTS_1G,))

    assert planned(snapshot).unplaced[0].reason is UnplacedReason.AWAITING_AGENT


def test_mig_mode_must_be_on_already() -> None:
    result = planned(cluster(server("node-1", mig(mig_enabled=False)), pending=[WANTS_1G]))

    assert result.node_changes == ()
    assert result.unplaced[0].reason is UnplacedReason.MIG_MODE_DISABLED
    assert "nvidia-smi -i 0 -mig 1" in result.unplaced[0].message


@pytest.mark.parametrize("partitioning", ["mps", "auto"])
def test_a_gpu_with_mig_on_gets_no_mps_slices(partitioning: str) -> None:
    result = planned(cluster(server("node-1", mig(), partitioning=partitioning), pending=[pod("a", "10gb")]))

    assert result.node_changes == ()
    assert result.unplaced[0].reason is UnplacedReason.BLOCKED
    assert "nvidia-smi -i 0 -mig 0" in result.unplaced[0].message


def test_auto_takes_each_gpu_as_it_is() -> None:
    pending = [WANTS_1G, pod("wants-mps", "10gb")]
    result = planned(cluster(server("node-1", mig(0), mps(1), partitioning="auto"), pending=pending))

    assert len(result.placed) == 2
    assert result.unplaced == ()


def whole(state: str, pod_title: str = "") -> GpuView:
    part = PartitionView(resource="nvidia.com/gpu", state=state, pod=pod_title)
    return replace(mps(0), partitions=(part,))


@pytest.mark.parametrize(
    ("gpu", "pods", "carved"),
    [
        pytest.param(whole("Used", "team/holder"), [], False, id="the status shows it"),
        pytest.param(whole("Free"), [holder("node-1", "nvidia.com/gpu")], False, id="the API shows it"),
        pytest.param(mps(0), [holder("node-1", "nvidia.com/gpu")], False, id="not known which"),
        pytest.param(whole("Free"), [], True, id="no pod holds it"),
    ],
)
def test_a_gpu_that_a_pod_holds_whole_is_not_cut(gpu: GpuView, pods: list[PodView], carved: bool) -> None:
    result = planned(cluster(server("node-1", gpu, partitioning="mps"), pods=pods, pending=[pod("a", "10gb")]))

    assert bool(result.node_changes) is carved


def test_the_first_item_of_an_unmanaged_gpu_keeps_what_it_holds() -> None:
    unmanaged = replace(mig(used=[("1g.5gb", 0)], idle=[("1g.5gb", 1)]), desired=None, state="Unmanaged")
    snapshot = cluster(server("node-1", unmanaged), pods=[holder("node-1", "1g.5gb")], pending=[pod("a", "3g.20gb")])

    assert only_layout(planned(snapshot)) == "1g.5gb at 0, 1g.5gb at 1, 3g.20gb at 4"


def test_our_own_taint_keeps_no_pod_off_a_plan() -> None:
    changing = server("node-1", mig(), taints=["gpuplan.dev/changing"])

    assert len(planned(cluster(changing, pending=[WANTS_1G])).placed) == 1


def test_a_plan_that_places_no_pod_is_not_written() -> None:
    too_large = pod("a", "1g.5gb", cpu=191_500)
    there = pod("b", cpu=1000, node_name="node-1")
    result = planned(cluster(server("node-1", mig()), pods=[there], pending=[too_large]))

    assert result.node_changes == ()
    assert result.unplaced[0].reason is UnplacedReason.NO_NODE_RESOURCES


def test_one_odd_node_leaves_only_itself_out() -> None:
    odd = server("node-1", replace(mig(), model=None))
    result = planned(cluster(odd, (node("node-2", product="???"), plan_of("node-2")), server("node-3", mig())))
    assert result.node_changes == ()
    result = planned(cluster(odd, server("node-3", mig()), pending=[WANTS_1G]))

    assert [one.node for one in result.placed] == ["node-3"]

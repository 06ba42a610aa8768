"""The smallest clusters on which planning by counts, by name or pod by pod goes wrong."""

from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult, Supply
from controller.model.views import GpuView, PodView
from controller.planning import plan
from tests.controller.planner.builders import cluster, holder, mig, pod, server
from tests.controller.planner.checker import check, layouts


def planned(*gpus: GpuView, pending: list[PodView], pods: list[PodView] | None = None) -> PlanningResult:
    snapshot = cluster(server("node-1", *gpus), pods=pods or [], pending=pending)
    result = plan(snapshot)
    check(snapshot, result)
    return result


def test_a_used_instance_in_the_middle_leaves_no_place_for_4g() -> None:
    result = planned(mig(used=[("1g.5gb", 2)]), pods=[holder("node-1", "1g.5gb")], pending=[pod("wants-4g", "4g.20gb")])

    assert result.node_changes == ()
    (unplaced,) = result.unplaced
    assert unplaced.reason is UnplacedReason.FRAGMENTED
    assert "mig-1g.5gb at 2" in unplaced.detail
    assert "team/holder" in unplaced.detail


def test_4g_and_3g_share_an_empty_gpu() -> None:
    result = planned(mig(), pending=[pod("a", "4g.20gb"), pod("b", "3g.20gb")])

    assert layouts(result) == ["4g.20gb at 0, 3g.20gb at 4"]


def test_3g_and_four_1g_share_an_empty_gpu() -> None:
    result = planned(mig(), pending=[pod("a", "3g.20gb"), *(pod(f"b{n}", "1g.5gb") for n in range(4))])

    assert len(result.placed) == 5
    assert layouts(result) == ["1g.5gb at 0, 1g.5gb at 1, 1g.5gb at 2, 1g.5gb at 3, 3g.20gb at 4"]


def test_two_gpus_hold_two_3g_and_eight_1g() -> None:
    pending = [pod(f"large{n}", "3g.20gb") for n in range(2)] + [pod(f"small{n}", "1g.5gb") for n in range(8)]
    result = planned(mig(0), mig(1), pending=pending)

    assert len(result.placed) == 10


def test_two_slices_of_one_pod_come_from_two_gpus() -> None:
    result = planned(
        mig(0, used=[("3g.20gb", 0)]),
        mig(1, used=[("3g.20gb", 0)]),
        pods=[holder("node-1", ("3g.20gb", 2))],
        pending=[pod("wants-two", ("3g.20gb", 2))],
    )

    assert [one.supply for one in result.placed] == [Supply.NEW]
    assert layouts(result) == ["3g.20gb at 0, 3g.20gb at 4"] * 2


def test_a_free_slice_on_a_node_that_pods_cannot_use_counts_for_no_pod() -> None:
    tainted = server("node-1", mig(idle=[("1g.5gb", 0)]), taints=["reserved"])
    snapshot = cluster(tainted, server("node-2", mig()), pending=[pod(f"p{n}", "1g.5gb") for n in range(5)])
    result = plan(snapshot)
    check(snapshot, result)

    assert {one.node for one in result.placed} == {"node-2"}
    assert len(result.placed) == 5
    (only,) = layouts(result)
    assert only.count("1g.5gb") == 5

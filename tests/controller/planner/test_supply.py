"""Pods get what exists or is under way before anything new is cut."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PlannerOptions, PodView
from controller.planner.inventory.eligibility import node_stock
from controller.planner.inventory.supply import supply_of
from controller.planning import plan
from crds.v1alpha1.names import GpuState
from tests.builders.models import A100
from tests.controller.planner.builders import cluster, holder, layout, mig, node, plan_of, pod, server
from tests.controller.planner.checker import check


def planned(snapshot: Snapshot) -> PlanningResult:
    result = plan(snapshot)
    check(snapshot, result)
    return result


def supplies(result: PlanningResult) -> dict[str, str]:
    return {one.key[1]: f"{one.supply} on {one.node}" for one in result.placed}


def pods(count: int, *requests: str) -> list[PodView]:
    return [pod(f"p{number}", *requests, created=number) for number in range(count)]


CHANGING = mig(desired=MigDesired(layout=layout(A100, ("1g.5gb", 0), ("1g.5gb", 1))), settled=False, under_way=True)


def test_an_idle_partition_is_used_as_it_is() -> None:
    result = planned(cluster(server("node-1", mig(idle=[("1g.5gb", 3)])), pending=pods(1, "1g.5gb")))

    assert supplies(result) == {"p0": "existing on node-1"}
    assert result.node_changes == ()


def test_what_running_pods_request_is_not_supply() -> None:
    gpu = mig(idle=[("1g.5gb", 0)])
    result = planned(cluster(server("node-1", gpu), pods=[holder("node-1", "1g.5gb")], pending=pods(1, "1g.5gb")))

    assert supplies(result) == {"p0": "new on node-1"}


def test_supply_under_way_is_waited_for_and_the_rest_is_cut() -> None:
    view = node("node-1", gpus=[CHANGING])
    snapshot = cluster((view, plan_of("node-1", gpus=[CHANGING, mig(1)])), pending=pods(3, "1g.5gb"))
    result = planned(snapshot)

    assert sorted(supplies(result).values()) == ["new on node-1", "under-way on node-1", "under-way on node-1"]
    assert [change.changed for change in result.node_changes] == [(1,)]


def test_supply_that_the_agent_gave_up_is_not_waited_for() -> None:
    failed = replace(CHANGING, under_way=False, state="Failed", backing_off=True)
    result = planned(cluster(server("node-1", failed), pending=pods(1, "1g.5gb")))

    assert result.placed == ()
    assert result.unplaced[0].reason is UnplacedReason.BLOCKED


def test_partitions_that_are_about_to_be_withdrawn_are_no_supply() -> None:
    leaving = replace(
        mig(idle=[("3g.20gb", 4)], desired=MigDesired(layout=layout(A100, ("1g.5gb", 0)))),
        settled=False,
        under_way=True,
    )
    result = planned(cluster(server("node-1", leaving), pending=pods(1, "3g.20gb")))

    assert result.placed == ()
    assert result.unplaced[0].reason is UnplacedReason.CHANGE_UNDER_WAY


def test_what_a_node_shows_no_longer_exists_where_no_gpu_has_it_nor_will() -> None:
    """An instance was destroyed for others, and the count of the Node is late: the other one is held."""
    view = node("node-1", gpus=[CHANGING], allocatable={"nvidia.com/mig-3g.20gb": 2})
    other = mig(1, used=[("3g.20gb", 0)], desired=MigDesired(layout=layout(A100, ("3g.20gb", 0), ("2g.10gb", 4))))
    waiting = replace(other, settled=False, under_way=True)
    there = (view, plan_of("node-1", gpus=[CHANGING, waiting]))
    result = planned(cluster(there, pods=[holder("node-1", "3g.20gb")], pending=pods(1, "3g.20gb")))

    assert supplies(result) == {}


def test_what_a_node_shows_late_is_not_counted_on_top_of_what_is_under_way() -> None:
    """Three are shown although none is there any more: two will be."""
    view = node("node-1", gpus=[CHANGING], allocatable={"nvidia.com/mig-1g.5gb": 3})
    result = planned(cluster((view, plan_of("node-1", gpus=[CHANGING])), pending=pods(3, "1g.5gb")))

    assert len(result.placed) == 2


def test_supply_on_a_pinned_gpu_counts() -> None:
    result = planned(cluster(server("node-1", mig(idle=[("1g.5gb", 3)], pinned=True)), pending=pods(1, "1g.5gb")))

    assert supplies(result) == {"p0": "existing on node-1"}


def test_supply_on_a_node_that_is_not_ours_counts() -> None:
    foreign = node("node-1", partitioning=None, allocatable={"nvidia.com/mig-1g.5gb": 1})
    result = planned(Snapshot(nodes=(foreign,), pending=tuple(pods(1, "1g.5gb"))))

    assert supplies(result) == {"p0": "existing on node-1"}


def test_a_reservation_outranks_the_queue() -> None:
    late, early = pod("late", "1g.5gb", created=2), pod("early", "1g.5gb", created=1)
    gpu = mig(idle=[("1g.5gb", 0)], pinned=True)
    snapshot = replace(cluster(server("node-1", gpu), pending=[late, early]), reservations={late.uid: "node-1"})

    assert supplies(planned(snapshot)) == {"late": "existing on node-1"}


def test_our_nomination_is_a_reservation() -> None:
    nominated = replace(pod("late", "1g.5gb", created=2), nominated_node="node-1", nomination_ours=True)
    gpu = mig(idle=[("1g.5gb", 0)], pinned=True)
    snapshot = cluster(server("node-1", gpu), pending=[nominated, pod("early", "1g.5gb", created=1)])

    assert supplies(planned(snapshot)) == {"late": "existing on node-1"}


def test_a_reservation_yields_to_a_higher_priority() -> None:
    planned_before, urgent = pod("planned_before", "1g.5gb"), pod("urgent", "1g.5gb", priority=9)
    gpu = mig(idle=[("1g.5gb", 0)], pinned=True)
    snapshot = replace(
        cluster(server("node-1", gpu), pending=[planned_before, urgent]), reservations={planned_before.uid: "node-1"}
    )

    assert supplies(planned(snapshot)) == {"urgent": "existing on node-1"}


def test_a_pod_that_the_scheduler_will_try_next_takes_what_exists() -> None:
    untried = pod("untried", "1g.5gb", unschedulable=False)
    gpu = mig(idle=[("1g.5gb", 0)], pinned=True)
    result = planned(cluster(server("node-1", gpu), pending=[untried, pod("tried", "1g.5gb", created=-1)]))

    assert supplies(result) == {}
    assert [one.key[1] for one in result.unplaced] == ["tried"]


def test_a_pod_that_a_scheduler_is_preempting_for_keeps_its_partition() -> None:
    preempting = replace(pod("preempting", "1g.5gb"), nominated_node="node-1")
    snapshot = cluster(server("node-1", mig(idle=[("1g.5gb", 0)])), pending=[preempting, pod("wants-7g", "7g.40gb")])

    assert planned(snapshot).node_changes == ()


def test_several_partitions_may_be_partly_there() -> None:
    result = planned(cluster(server("node-1", mig(idle=[("3g.20gb", 4)])), pending=[pod("two", ("3g.20gb", 2))]))

    assert supplies(result) == {"two": "new on node-1"}
    assert result.counts.partitions_destroyed == 0
    assert result.counts.partitions_created == 1


def test_idle_partitions_are_cut_when_more_pods_run_without_them() -> None:
    """Keeping the idle 3g in the wrong half would leave no place for a 4g."""
    pending = [pod("a", "3g.20gb"), pod("b", "4g.20gb")]
    result = planned(cluster(server("node-1", mig(idle=[("3g.20gb", 0)])), pending=pending))

    assert len(result.placed) == 2


def test_what_bound_pods_hold_and_no_gpu_has_is_made_for_no_further_pod() -> None:
    """kube-scheduler counts it as theirs. Other profiles, and other nodes, are not concerned."""
    lost = holder("node-1", "1g.5gb", name="lost")
    pending = [pod("small", "1g.5gb", created=1), pod("large", "3g.20gb", created=2)]

    assert supplies(planned(cluster(server("node-1", mig()), pods=[lost], pending=pending))) == {
        "large": "new on node-1"
    }
    two = planned(cluster(server("node-1", mig()), server("node-2", mig()), pods=[lost], pending=pending[:1]))
    assert supplies(two) == {"small": "new on node-2"}


def test_what_is_under_way_for_a_bound_pod_keeps_no_pod_off_its_node() -> None:
    view = node("node-1", gpus=[CHANGING])
    there = [holder("node-1", "1g.5gb", name=f"early-{number}") for number in range(2)]
    snapshot = cluster((view, plan_of("node-1", gpus=[CHANGING, mig(1)])), pods=there, pending=pods(1, "1g.5gb"))

    assert supplies(planned(snapshot)) == {"p0": "new on node-1"}


def test_what_the_plugin_of_others_offers_more_often_than_it_is_there_is_supply() -> None:
    """It shares each instance by time; of our own plugin the surplus is what is gone already."""
    shared = mig(0, used=[("1g.5gb", 0), ("1g.5gb", 1)])
    failed = replace(mig(1), settled=False, state=GpuState.FAILED)
    found = {}
    for by_nvidia in (True, False):
        there = node("n1", gpus=[shared, failed], allocatable={"nvidia.com/mig-1g.5gb": 8})
        view = replace(plan_of("n1", gpus=[shared, failed]), by_nvidia=by_nvidia)
        holders = [holder("n1", ("1g.5gb", 1), name=f"holder-{number}") for number in range(2)]
        stock = node_stock(there, view, holders, PlannerOptions())
        found[by_nvidia] = dict(supply_of(stock).existing)
    assert found == {True: {"nvidia.com/mig-1g.5gb": 6}, False: {}}

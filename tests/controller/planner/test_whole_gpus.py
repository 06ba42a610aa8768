"""Pods that request whole GPUs: what they take must not be cut for others, and the answer names why they wait."""

from dataclasses import replace

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult, Supply
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, PodView, WholeDesired
from controller.planning import plan
from partitioning.models import GpuModel
from partitioning.resources import WHOLE
from tests.builders.models import A100
from tests.controller.planner.builders import cluster, holder, mig, mps, node, pod, server
from tests.controller.planner.checker import check


def planned(snapshot: Snapshot) -> PlanningResult:
    result = plan(snapshot)
    check(snapshot, result)
    return result


def placed(result: PlanningResult) -> dict[str, Supply]:
    return {one.key[1]: one.supply for one in result.placed}


def shared(*gpus: GpuView, offered_whole: int = 0, pending: list[PodView]) -> Snapshot:
    """A node for MPS that offers some of its GPUs whole."""
    return cluster(
        server("node-1", *gpus, partitioning="mps", allocatable={WHOLE: offered_whole} if offered_whole else None),
        pending=pending,
    )


@pytest.mark.parametrize(("priority", "expected"), [(10, {"whole"}), (0, {"slice-0", "slice-1"})])
def test_an_uncut_gpu_is_kept_for_a_pod_of_higher_priority(priority: int, expected: set[str]) -> None:
    slices = [pod(f"slice-{number}", "20gb", priority=5) for number in range(2)]
    pending = [pod("whole", WHOLE, priority=priority), *slices]
    result = planned(shared(mps(0), offered_whole=1, pending=pending))

    assert set(placed(result)) == expected


def test_one_that_was_not_tried_yet_keeps_what_is_there_for_it() -> None:
    pending = [pod("whole", WHOLE, unschedulable=False), pod("slice", "10gb")]
    result = planned(shared(mps(0), mps(1), offered_whole=1, pending=pending))

    assert placed(result) == {"slice": Supply.NEW}
    assert len(result.node_changes[0].changed) == 1


def test_a_gpu_whose_slices_are_idle_is_made_whole_again() -> None:
    result = planned(shared(mps(0, idle_gb=[10, 10]), pending=[pod("whole", WHOLE)]))

    assert placed(result) == {"whole": Supply.NEW}
    assert [item.desired for item in result.node_changes[0].gpus] == [WholeDesired()]
    assert result.counts.partitions_destroyed == 2


def test_slices_in_use_stay() -> None:
    result = planned(shared(mps(0, used_gb=[10]), pending=[pod("whole", WHOLE)]))

    assert not result.node_changes
    assert result.unplaced[0].reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "1 is partitioned and in use" in result.unplaced[0].message


def test_what_exists_whole_needs_no_plan() -> None:
    ordinary = node("node-9", partitioning=None, allocatable={WHOLE: 8})
    snapshot = replace(cluster(pending=[pod("whole", (WHOLE, 8))]), nodes=(ordinary,))

    assert placed(planned(snapshot)) == {"whole": Supply.EXISTING}


def test_holders_of_the_gpus_are_named() -> None:
    ordinary = node("node-9", partitioning=None, allocatable={WHOLE: 2})
    taken = holder("node-9", (WHOLE, 1), name="trainer")
    snapshot = replace(cluster(pending=[pod("whole", (WHOLE, 2))], pods=[taken]), nodes=(ordinary,))
    (missed,) = planned(snapshot).unplaced

    assert missed.reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "No node has 2 whole GPUs free: 2 are in use." in missed.message


def test_gpus_in_mig_mode_are_never_whole() -> None:
    (missed,) = planned(cluster(server("node-1", mig(0), mig(1)), pending=[pod("whole", WHOLE)])).unplaced

    assert missed.reason is UnplacedReason.BLOCKED
    assert "2 are in MIG mode" in missed.message


@pytest.mark.parametrize("model", [None, replace(A100, confirmed=False)])
def test_a_gpu_in_mig_mode_without_known_placements_is_whole_once_that_is_off(model: GpuModel | None) -> None:
    doubtful = replace(mig(0), model=model)
    (missed,) = planned(cluster(server("node-1", doubtful), pending=[pod("whole", WHOLE)])).unplaced

    assert "1 is in MIG mode. Ask an administrator to turn MIG mode off on a GPU" in missed.message


def test_more_than_any_node_has_never_fits() -> None:
    (missed,) = planned(shared(mps(0), mps(1), pending=[pod("whole", (WHOLE, 3))])).unplaced

    assert missed.reason is UnplacedReason.NEVER_FITS


def test_whole_pods_of_other_schedulers_are_not_ours_to_explain() -> None:
    result = planned(shared(mps(0), pending=[pod("whole", WHOLE, scheduler_name="volcano")]))

    assert (result.placed, result.unplaced) == ((), ())


def test_the_bound_counts_whole_gpus() -> None:
    pending = [pod(f"whole-{number}", WHOLE) for number in range(3)] + [pod("slice", "30gb", priority=1)]
    result = planned(shared(mps(0), mps(1), pending=pending))

    assert (len(result.placed), result.bound) == (2, 3)  # each resource alone: two whole GPUs, and a slice

"""Corrections of `spec.planned` that need no pending pod."""

from dataclasses import replace

import pytest

from controller.api.plan_items import desired_of
from controller.model.results import PlanningResult
from controller.model.views import GpuView, MigDesired, MpsDesired, PlannedGpu, PlanView, WholeDesired
from controller.planning import plan
from crds.v1alpha1.spec import GpuItem
from partitioning.mps import slice_of_gb
from tests.builders.models import A100
from tests.controller.planner.builders import cluster, layout, mig, mps, node, plan_of, server


def planned(*gpus: GpuView, **plan_fields: object) -> PlanningResult:
    view, plan_view = server("node-1", *gpus)
    return plan(cluster((view, replace(plan_view, **plan_fields))))  # type: ignore[arg-type]  # by field name


def changing(gpu: GpuView, *desired: tuple[str, int]) -> GpuView:
    item = MigDesired(layout=layout(A100, *desired))
    return replace(gpu, desired=item, settled=False, under_way=True)


def test_a_partition_that_was_taken_meanwhile_is_put_back_and_what_overlaps_it_dropped() -> None:
    gpu = changing(mig(used=[("1g.5gb", 0)]), ("4g.20gb", 0), ("3g.20gb", 4))
    result = planned(gpu)

    (change,) = result.node_changes
    assert change.gpus[0].desired == MigDesired(layout=layout(A100, ("1g.5gb", 0), ("3g.20gb", 4)))
    assert change.gpus[0].uuid == gpu.uuid
    assert result.placed == ()


def test_an_unknown_partition_is_not_put_back() -> None:
    gpu = changing(mig(used=[("1g.5gb", 0)]), ("4g.20gb", 0))
    unknown = replace(gpu, partitions=tuple(replace(part, state="Unknown") for part in gpu.partitions))

    assert planned(unknown).node_changes == ()


def test_an_mps_slice_that_was_taken_meanwhile_pushes_out_planned_ones() -> None:
    gpu = mps(used_gb=[20])
    item = MpsDesired(slices=(slice_of_gb(10), slice_of_gb(30)))
    result = planned(replace(gpu, desired=item, settled=False, under_way=True))

    (change,) = result.node_changes
    assert change.gpus[0].desired == MpsDesired(slices=(slice_of_gb(10), slice_of_gb(20)))


def test_a_plan_that_lists_the_same_slices_in_another_order_is_not_written_again() -> None:
    gpu = replace(mps(used_gb=[20], idle_gb=[5, 10]), desired=None)
    item = GpuItem.read({"index": 0, "mps": {"slices": [{"memoryGB": gb} for gb in (10, 20, 5)]}})
    as_read = desired_of(item, model=A100, memory_mib=A100.memory_mib)

    assert planned(replace(gpu, desired=as_read)).node_changes == ()
    assert as_read == MpsDesired(slices=(slice_of_gb(5), slice_of_gb(10), slice_of_gb(20)))


def test_gpus_and_nodes_that_users_own_are_not_corrected() -> None:
    gpu = changing(mig(used=[("1g.5gb", 0)]), ("4g.20gb", 0))

    assert planned(gpu, mode="Manual").node_changes == ()
    assert planned(gpu, paused=True).node_changes == ()
    assert planned(replace(gpu, pinned=True)).node_changes == ()
    assert planned(gpu, agent_alive=False).node_changes == ()


def stale_pin(**plan_fields: object) -> PlanningResult:
    """People have pinned GPU 0, of which the controller's list still holds an item."""
    gpus = replace(mig(0), pinned=True, desired=WholeDesired()), mig(1, idle=[("1g.5gb", 0)])
    items = tuple(
        PlannedGpu(index=index, uuid=f"GPU-{index}", desired=MigDesired(layout=layout(A100, ("1g.5gb", 0))))
        for index in range(2)
    )
    return planned(*gpus, planned=items, **plan_fields)


def test_a_stale_item_of_a_pinned_gpu_is_dropped() -> None:
    for fields in ({}, {"mode": "Manual"}, {"paused": True}):
        (change,) = stale_pin(**fields).node_changes
        assert [item.index for item in change.gpus] == [1]
        assert change.changed == (0,)


def test_a_node_that_lost_its_label_is_left_as_it_is() -> None:
    view, plan_view = server("node-1", replace(mig(0), pinned=True))
    items = (PlannedGpu(index=0, uuid="GPU-0", desired=WholeDesired()),)

    result = plan(cluster((replace(view, partitioning=None), replace(plan_view, planned=items))))
    assert result.node_changes == ()


def test_the_item_of_a_gpu_that_was_removed_is_dropped() -> None:
    items = (PlannedGpu(index=0, uuid="GPU-of-old", desired=MigDesired(layout=layout(A100, ("7g.40gb", 0)))),)
    (change,) = planned(replace(mig(0), settled=False, state="Failed"), planned=items).node_changes

    assert change.gpus == ()


def test_an_item_of_a_gpu_that_is_not_reported_stays() -> None:
    gpus = [mig(0)]
    items = (PlannedGpu(index=7, uuid="GPU-7", desired=WholeDesired()),)
    plan_view: PlanView = replace(plan_of("node-1", gpus=gpus), planned=items)

    assert plan(cluster((node("node-1", gpus=gpus), plan_view))).node_changes == ()


def test_cards_that_moved_get_their_new_indexes_once() -> None:
    first, second = mig(0, idle=[("1g.5gb", 0)]), mig(1, idle=[("2g.10gb", 0)])
    moved = (replace(second, index=0), replace(first, index=1))
    before = (
        PlannedGpu(index=0, uuid=first.uuid, desired=MigDesired(layout=layout(A100, ("1g.5gb", 0)))),
        PlannedGpu(index=1, uuid=second.uuid, desired=MigDesired(layout=layout(A100, ("2g.10gb", 0)))),
    )

    (change,) = planned(*moved, planned=before).node_changes

    assert change.gpus == (replace(before[1], index=0), replace(before[0], index=1))
    assert change.changed == (0, 1)
    assert planned(*moved, planned=change.gpus).node_changes == ()


def test_the_item_of_a_card_that_is_gone_makes_way_for_one_that_moved_there() -> None:
    gone, moved = mig(0), replace(mig(1, idle=[("2g.10gb", 0)]), index=0)
    item = PlannedGpu(index=1, uuid=moved.uuid, desired=MigDesired(layout=layout(A100, ("2g.10gb", 0))))
    before = (PlannedGpu(index=0, uuid=gone.uuid, desired=WholeDesired()), item)

    (change,) = planned(moved, planned=before).node_changes

    assert change.gpus == (replace(item, index=0),)


@pytest.mark.parametrize("fields", [{"mode": "Manual"}, {"paused": True}])
def test_indexes_of_a_plan_that_people_keep_stay(fields: dict[str, object]) -> None:
    moved = replace(mig(1), index=0)
    before = (PlannedGpu(index=1, uuid=moved.uuid, desired=WholeDesired()),)

    assert planned(moved, planned=before, **fields).node_changes == ()


def test_an_item_that_is_corrected_gets_the_uuid_of_its_card() -> None:
    gpu = changing(mig(used=[("1g.5gb", 0)]), ("4g.20gb", 0))
    before = (PlannedGpu(index=0, uuid="", desired=MigDesired(layout=layout(A100, ("4g.20gb", 0)))),)

    (change,) = planned(gpu, planned=before).node_changes

    assert change.gpus[0].uuid == gpu.uuid

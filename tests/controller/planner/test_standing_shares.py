"""Equal replicas and units of GiB are planned before any pod comes, and change only while no container holds one."""

from dataclasses import replace

import pytest

from controller.api.plan_items import item_of
from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.views import GpuView, MpsDesired, PartitionView, PlannedGpu, PlannerOptions
from controller.planning import plan
from partitioning.mps import replicas_of, units_of_gib
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, mig, mps, pod, server

FOUR = PlannerOptions(mps_replicas=4)
IDLE = replace(mps(gpu_model=H100), state="Unmanaged")


def planned(
    *gpus: GpuView, options: PlannerOptions = FOUR, partitioning: str | None = "mps", **labels: object
) -> PlanningResult:
    node, view = server("node-1", *gpus, partitioning=partitioning)
    node = replace(node, **labels)  # type: ignore[arg-type]  # by field name
    items = [PlannedGpu(index=gpu.index, uuid=gpu.uuid, desired=gpu.desired) for gpu in gpus if gpu.desired]
    return plan(cluster((node, replace(view, planned=tuple(items)))), options)


def written(result: PlanningResult) -> dict[int, dict[str, object]]:
    """The MPS part of each item, by index."""
    found = {gpu.index: item_of(gpu).wire() for change in result.node_changes for gpu in change.gpus}
    return {index: wire["mps"] for index, wire in found.items() if "mps" in wire}


def shared(count: int, *, used: int = 0) -> GpuView:
    """A GPU with so many replicas, as planned."""
    shares = replicas_of(H100.memory_mib, count)
    partitions = tuple(
        PartitionView(
            resource=share.resource,
            memory_mib=share.memory_mib,
            state="Used" if number < used else "Free",
            id=f"GPU-0::{number}",
            pod="team/holder" if number < used else "",
        )
        for number, share in enumerate(shares)
    )
    return replace(mps(gpu_model=H100), partitions=partitions, desired=MpsDesired(slices=shares))


@pytest.mark.parametrize(
    ("setting", "label", "replicas"), [(4, None, 4), (4, 7, 7), (0, 7, 7), (4, 0, None), (0, None, None)]
)
def test_a_label_goes_before_the_setting(setting: int, label: int | None, replicas: int | None) -> None:
    result = planned(IDLE, options=PlannerOptions(mps_replicas=setting), mps_replicas=label)
    assert written(result) == ({} if replicas is None else {0: {"replicas": replicas}})


@pytest.mark.parametrize(("replicas", "items"), [(0, {}), (4, {0: {"replicas": 4}})])
def test_what_nvidias_plugin_serves_is_planned_for_a_whole_node_and_for_no_pod(
    replicas: int, items: dict[int, object]
) -> None:
    node, view = server("node-1", IDLE, partitioning="mps")
    pending = pod("p", "10gb")
    options = PlannerOptions(mps_replicas=replicas)
    assert written(plan(cluster((node, view), pending=[pending]), PlannerOptions())) != {}
    assert written(plan(cluster((node, replace(view, by_nvidia=True)), pending=[pending]), options)) == items


def test_nothing_is_written_again() -> None:
    assert planned(shared(4)).node_changes == ()
    named_otherwise = MpsDesired(slices=replicas_of(H100.memory_mib, 4, renamed=False))
    assert planned(replace(shared(4), desired=named_otherwise)).node_changes == ()


@pytest.mark.parametrize(("used", "items"), [(0, {0: {"replicas": 4}}), (1, {})])
def test_replicas_change_only_while_no_container_holds_one(used: int, items: dict[int, object]) -> None:
    assert written(planned(shared(2, used=used))) == items


REFUSED = replace(shared(60), partitions=IDLE.partitions, state="Failed", settled=False)
"""More replicas than MPS serves on this GPU, so it stays as it was."""


@pytest.mark.parametrize(
    ("gpu", "label", "items"),
    [
        (REFUSED, 4, {0: {"replicas": 4}}),
        (REFUSED, 0, None),
        (REFUSED, 60, {}),
        (replace(shared(2, used=1), state="Failed", settled=False), 4, {}),
        (replace(shared(2, used=1), state="Failed", settled=False), 0, {}),
        (replace(mps(gpu_model=H100), state="Failed", settled=False), 4, {}),
    ],
    ids=["corrected", "none any more", "the same", "in use", "in use, none any more", "another failure"],
)
def test_shares_that_were_refused_follow_the_label(gpu: GpuView, label: int, items: dict[int, object] | None) -> None:
    """`items`: None where the only item is dropped."""
    result = planned(gpu, options=PlannerOptions(), mps_replicas=label)
    assert [change.gpus for change in result.node_changes if not change.gpus] == ([] if items is not None else [()])
    assert written(result) == (items or {})


@pytest.mark.parametrize(
    "gpu",
    [
        replace(IDLE, pinned=True),
        replace(IDLE, mig_enabled=True),
        replace(IDLE, model=None),
        replace(IDLE, settled=False, under_way=True),
        mps(gpu_model=H100, used_gb=[10]),
        mig(gpu_model=H100),
    ],
    ids=["pinned", "MIG mode on", "unknown model", "in change", "slices in use", "MIG"],
)
def test_these_gpus_are_left_alone(gpu: GpuView) -> None:
    assert written(planned(gpu)) == {}
    assert written(planned(gpu, partitioning="mig")) == {}
    assert written(planned(gpu, partitioning=None)) == {}


def test_no_pod_gets_a_shared_gpu_cut_for_it() -> None:
    node, view = server("node-1", shared(4), partitioning="mps")
    result = plan(cluster((node, view), pending=[pod("a", "10gb")]), FOUR)
    assert result.node_changes == ()
    (unplaced,) = result.unplaced
    assert "is shared in equal parts" in unplaced.message
    assert "gpuplan.dev/mps-replicas=0" in unplaced.message


def test_acks_label_means_units() -> None:
    assert written(planned(IDLE, shared_by_gib=True)) == {0: {"slices": [{"memoryGiB": 79}]}}
    assert written(planned(IDLE, shared_by_gib=True, mps_replicas=2)) == {0: {"replicas": 2}}
    slices = PlannerOptions(ack_units=False)
    assert written(planned(IDLE, options=slices, shared_by_gib=True)) == {}
    there = replace(IDLE, desired=MpsDesired(slices=units_of_gib(79)), state="Ready")
    assert planned(there, shared_by_gib=True).node_changes == ()


@pytest.mark.parametrize(("gib", "reason"), [(79, None), (80, UnplacedReason.NEVER_FITS)])
def test_a_container_that_requests_more_than_one_gpu_has_gets_the_reason(
    gib: int, reason: UnplacedReason | None
) -> None:
    there = replace(IDLE, desired=MpsDesired(slices=units_of_gib(79)), state="Ready")
    node, view = server("node-1", there, partitioning="mps", allocatable={"aliyun.com/gpu-mem": 158})
    waiting = replace(pod("a", ("aliyun.com/gpu-mem", gib)), most_units=gib)
    result = plan(cluster((replace(node, shared_by_gib=True), view), pending=[waiting]))
    assert [one.reason for one in result.unplaced] == ([] if reason is None else [reason])

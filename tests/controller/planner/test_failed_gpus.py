"""A GPU whose change failed is planned again when its back-off is over, around what could not be made."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.views import GpuView, MigDesired
from controller.planning import plan
from tests.builders.models import A100
from tests.controller.planner.builders import cluster, instance, layout, mig, mps, pod, server
from tests.controller.planner.checker import check

BAD = instance(A100, "3g.20gb", 4)


def failed(*, backing_off: bool = False, state: str = "Failed") -> GpuView:
    """It holds a used 1g and an idle one; the 3g next to them could not be made."""
    desired = MigDesired(layout=layout(A100, ("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4)))
    gpu = mig(used=[("1g.5gb", 0)], idle=[("1g.5gb", 1)], desired=desired, settled=False)
    return replace(gpu, state=state, backing_off=backing_off)


def test_it_is_left_alone_while_it_backs_off() -> None:
    result = plan(cluster(server("node-1", failed(backing_off=True)), pending=[pod("p", "2g.10gb")]))

    assert not result.node_changes
    assert result.unplaced[0].reason is UnplacedReason.BLOCKED


def test_then_it_is_planned_around_the_bad_instance() -> None:
    snapshot = cluster(server("node-1", failed()), pending=[pod("p", "2g.10gb")])
    result = plan(snapshot)

    check(snapshot, result)
    (item,) = result.node_changes[0].gpus
    assert isinstance(item.desired, MigDesired)
    assert BAD not in item.desired.layout
    assert item.desired.layout.counts() == {"1g.5gb": 2, "2g.10gb": 1}
    assert not any(one.mask & BAD.mask for one in item.desired.layout)


def test_no_pod_is_placed_on_the_bad_instance() -> None:
    result = plan(cluster(server("node-1", failed()), pending=[pod("p", "3g.20gb")]))

    assert not result.placed


def test_what_waits_for_a_release_is_no_failure() -> None:
    result = plan(cluster(server("node-1", failed(state="WaitingForRelease")), pending=[pod("p", "2g.10gb")]))

    assert not result.node_changes


def test_shared_gpus_that_failed_stay_ineligible() -> None:
    gpu = replace(mps(idle_gb=[10]), settled=False, state="Failed")
    result = plan(cluster(server("node-1", gpu, partitioning="mps"), pending=[pod("p", "20gb")]))

    assert not result.node_changes


def test_a_gpu_whose_partitions_have_no_placement_is_not_cut() -> None:
    gpu = failed()
    unread = tuple(replace(part, start=0, size=0) for part in gpu.partitions)
    result = plan(cluster(server("node-1", replace(gpu, partitions=unread)), pending=[pod("p", "2g.10gb")]))

    assert not result.node_changes
    assert "GPU 0 on node node-1 has partitions without a placement" in result.unplaced[0].message

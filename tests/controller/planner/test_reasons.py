"""Every pod that gets nothing is told why, with names, numbers and what would help."""

from dataclasses import replace

import pytest

from controller.planner import plan
from controller.reasons import UnplacedReason
from controller.views import PodView, Requirement, Snapshot, Unplaced
from tests.controller.planner.builders import H100, cluster, holder, mig, mps, node, pod, server
from tests.controller.planner.checker import check


def told(snapshot: Snapshot, name: str = "a") -> tuple[UnplacedReason, str]:
    result = plan(snapshot)
    check(snapshot, result)
    found: Unplaced = next(one for one in result.unplaced if one.key[1] == name)
    return found.reason, found.message


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        pytest.param(pod("a", "1g.10gb+gfx"), "NVIDIA-A100-SXM4-40GB offers 1g.5gb, ", id="no such profile"),
        pytest.param(pod("a", ("7g.40gb", 2)), "at most 1 x nvidia.com/mig-7g.40gb", id="too many for a node"),
        pytest.param(pod("a", "1g.5gb", cpu=200_000), "200 cores and 4.0 GiB", id="more CPU than a node has"),
        pytest.param(pod("a", "1g.5gb", memory_gib=4096), "4096.0 GiB", id="more memory than a node has"),
    ],
)
def test_never_fits(asks: PodView, words: str) -> None:
    reason, message = told(cluster(server("node-1", mig()), pending=[asks]))

    assert reason is UnplacedReason.NEVER_FITS
    assert words in message


def test_no_node_with_gpus() -> None:
    reason, message = told(
        Snapshot(nodes=(node("node-1", partitioning=None, product=""),), pending=(pod("a", "1g.5gb"),))
    )

    assert reason is UnplacedReason.NEVER_FITS
    assert "nvidia.com/gpu.product" in message


def test_filtered_by_the_scheduler_in_its_own_words() -> None:
    servers = server("node-1", mig(), taints=["reserved"]), server("node-2", mig(), labels={"zone": "b"})
    zone = Requirement(key="zone", operator="In", values=("a",))
    reason, message = told(cluster(*servers, pending=[pod("a", "1g.5gb", affinity=[zone])]))

    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)" in message


def test_a_release_that_would_help_is_named() -> None:
    gpu = mig(used=[("7g.40gb", 0)], holder="team/trainer")
    reason, message = told(
        cluster(server("node-1", gpu), pods=[holder("node-1", "7g.40gb", name="trainer")], pending=[pod("a", "1g.5gb")])
    )

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "GPU 0 of node-1" in message
    assert "team/trainer" in message


def test_free_but_in_pieces() -> None:
    gpu = mig(used=[("1g.5gb", 1), ("1g.5gb", 5)])
    holders = [holder("node-1", ("1g.5gb", 2))]
    reason, message = told(cluster(server("node-1", gpu), pods=holders, pending=[pod("a", "3g.20gb")]))

    assert reason is UnplacedReason.FRAGMENTED
    assert "needs 4 memory slices in one piece" in message
    assert "1g.5gb at 1, 1g.5gb at 5" in message


def test_full_with_pods_of_this_very_plan() -> None:
    pending = [pod("first", "7g.40gb", priority=1), pod("a", "1g.5gb")]
    reason, message = told(cluster(server("node-1", mig()), pending=pending))

    assert reason is UnplacedReason.NO_CAPACITY
    assert "add a node" in message


def test_gpus_have_room_and_nodes_have_not() -> None:
    busy = pod("busy", cpu=191_000, node_name="node-1")
    reason, message = told(cluster(server("node-1", mig()), pods=[busy], pending=[pod("a", "1g.5gb", cpu=8000)]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert "1 cores" in message
    assert "8 cores" in message


def test_pod_slots_are_node_resources_too() -> None:
    busy = pod("busy", node_name="node-1")
    reason, message = told(cluster(server("node-1", mig(), pods=1), pods=[busy], pending=[pod("a", "1g.5gb")]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert "pod slots" in message


def test_mps_memory_in_use() -> None:
    gpu = mps(gpu_model=H100, used_gb=[40, 30])
    holders = [holder("node-1", "40gb", "30gb")]
    reason, message = told(cluster(server("node-1", gpu, partitioning="mps"), pods=holders, pending=[pod("a", "20gb")]))

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "team/holder" in message


def test_partitions_of_both_kinds_at_once() -> None:
    mixed = replace(pod("a", "1g.5gb", "10gb"), most_mps_per_container=1)
    reason, message = told(cluster(server("node-1", mig()), pending=[mixed]))

    assert reason is UnplacedReason.BLOCKED
    assert message


def test_closed_gpus_are_mentioned_beside_full_ones() -> None:
    pending = [pod("first", "7g.40gb", priority=1), pod("a", "1g.5gb")]
    servers = server("node-1", mig()), server("node-2", mig(pinned=True))
    reason, message = told(cluster(*servers, pending=pending))

    assert reason is UnplacedReason.NO_CAPACITY
    assert "GPU 0 of node-2 is pinned" in message

"""Every pod that gets nothing is told why, with names, numbers and what would help."""

from dataclasses import replace

import pytest

from controller.planner import plan
from controller.planner.wording import counted
from controller.reasons import UnplacedReason
from controller.results import Unplaced
from controller.views import GpuView, PartitionView, PodView, Requirement, Snapshot
from partitioning.resources import WHOLE
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


def test_the_model_of_a_node_that_has_not_reported() -> None:
    reason, message = told(Snapshot(nodes=(node("node-1", product="NVIDIA-Z9"),), pending=(pod("a", "1g.5gb"),)))

    assert reason is UnplacedReason.AWAITING_AGENT
    assert message == "GPUs not reported yet: node-1: see the node agent there"


def test_a_reported_model_that_nobody_knows() -> None:
    gpu = replace(mig(), model=None)
    reason, message = told(cluster(server("node-1", gpu, product="NVIDIA-Z9"), pending=[pod("a", "1g.5gb")]))

    assert reason is UnplacedReason.NEVER_FITS
    assert message.endswith("GPU 0 of node-1 is of an unknown model: see status.models of its plan")


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


def held_by_each(gpu: GpuView) -> GpuView:
    """Every partition has a pod of its own."""
    parts = (replace(part, pod=f"team/p{number}") for number, part in enumerate(gpu.partitions))
    return replace(gpu, partitions=tuple(parts))


ONES = [("1g.10gb", start) for start in range(7)]


@pytest.mark.parametrize(
    ("used", "asks", "limit", "who"),
    [
        pytest.param(
            ONES,
            "1g.10gb",
            "its 7 compute slices are used",
            "one of team/p0, team/p1, team/p2 and 4 more releases what it holds there",
            id="the eighth of seven",
        ),
        pytest.param(
            [("1g.10gb+me", 0)],
            "1g.10gb+me",
            "it can hold one +me instance",
            "team/p0 releases 1g.10gb+me at 0",
            id="a second one with the media engines",
        ),
        pytest.param(
            [("3g.40gb", 0), ("3g.40gb", 4)],
            "1g.10gb",
            "its 8 memory slices are used",
            "one of team/p0, team/p1 releases",
            id="memory runs out before compute",
        ),
        pytest.param(
            [("4g.40gb", 0)],
            "4g.40gb",
            "3 of its 7 compute slices are free, and the instance needs 4",
            "team/p0 releases 4g.40gb at 0",
            id="not enough compute slices left",
        ),
        pytest.param(
            [("1g.10gb", 0), ("1g.10gb", 4)],
            "7g.80gb",
            "5 of its 7 compute slices are free",
            "team/p0, team/p1 release both of their partitions there",
            id="no release alone helps",
        ),
    ],
)
def test_what_is_used_up_is_named(used: list[tuple[str, int]], asks: str, limit: str, who: str) -> None:
    gpu = held_by_each(mig(gpu_model=H100, used=used))
    # Profiles in the order of their places, as the GPU shows them.
    holders = [holder("node-1", profile, name=f"p{number}") for number, (profile, _) in enumerate(used)]
    reason, message = told(cluster(server("node-1", gpu), pods=holders, pending=[pod("a", asks)]))

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert limit in message
    assert who in message
    assert "(1 such GPU)" in message


def test_one_memory_slice_in_the_singular() -> None:
    gpu = mig(gpu_model=H100, used=[("1g.20gb", 0), ("1g.20gb", 2), ("1g.20gb", 4), ("1g.10gb", 6)])
    snapshot = cluster(
        server("node-1", gpu), pods=[holder("node-1", ("1g.20gb", 3), "1g.10gb")], pending=[pod("a", "1g.10gb")]
    )
    reason, message = told(snapshot)

    assert reason is UnplacedReason.FRAGMENTED
    assert "needs 1 memory slice in one piece; GPU 0 of node-1 has 1 free" in message
    assert "team/holder releases one of 1g.20gb at 0, 1g.20gb at 2, 1g.20gb at 4" in message


def test_the_limit_of_mps_clients_is_no_fragmentation() -> None:
    gpu = mps(gpu_model=H100, used_gb=[1] * 48)
    holders = [holder("node-1", ("1gb", 48))]
    reason, message = told(cluster(server("node-1", gpu, partitioning="mps"), pods=holders, pending=[pod("a", "10gb")]))

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "it serves 48 MPS clients and has as many" in message


def test_the_largest_mps_slice_is_named() -> None:
    reason, message = told(
        cluster(server("node-1", mps(gpu_model=H100), partitioning="mps"), pending=[pod("a", "200gb")])
    )

    assert reason is UnplacedReason.NEVER_FITS
    assert "the largest slice a GPU here can hold is gpu-85gb (NVIDIA-H100-80GB-HBM3)" in message


@pytest.mark.parametrize(
    ("partition", "told_so"),
    [
        pytest.param(
            PartitionView(resource=WHOLE, state="Used", pod="team/trainer"),
            "GPU 0 of node-1 is held whole by team/trainer: wait for its release, or add a node",
            id="by a pod that is known",
        ),
        pytest.param(
            PartitionView(resource=WHOLE, state="Used"),
            "is held whole by a pod: wait for its release, or add a node",
            id="by somebody",
        ),
        pytest.param(
            PartitionView(resource=WHOLE, state="Unknown"), "whether it is in use is not known", id="perhaps by nobody"
        ),
    ],
)
def test_who_holds_a_gpu_whole(partition: PartitionView, told_so: str) -> None:
    gpu = replace(mps(gpu_model=H100), partitions=(partition,))
    reason, message = told(cluster(server("node-1", gpu, partitioning="mps"), pending=[pod("a", "10gb")]))

    assert reason is UnplacedReason.BLOCKED
    assert told_so in message


def test_a_gpu_held_whole_somewhere_on_the_node() -> None:
    trainer = holder("node-1", WHOLE, name="trainer")
    snapshot = cluster(
        server("node-1", mps(gpu_model=H100), partitioning="mps"), pods=[trainer], pending=[pod("a", "10gb")]
    )
    reason, message = told(snapshot)

    assert reason is UnplacedReason.BLOCKED
    assert "GPU 0 of node-1 may be held whole by a pod of its node: wait for its release, or add a node" in message


@pytest.mark.parametrize(("number", "expected"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (0.5, "0.5 nodes")])
def test_a_noun_agrees_with_its_number(number: float, expected: str) -> None:
    assert counted(number, "node") == expected


def test_full_with_pods_of_this_very_plan() -> None:
    pending = [pod("first", "7g.40gb", priority=1), pod("a", "1g.5gb")]
    reason, message = told(cluster(server("node-1", mig()), pending=pending))

    assert reason is UnplacedReason.NO_CAPACITY
    assert "the GPU for 1 x nvidia.com/mig-1g.5gb is full" in message
    assert "add a node" in message


def test_gpus_have_room_and_nodes_have_not() -> None:
    busy = pod("busy", cpu=191_000, node_name="node-1")
    reason, message = told(cluster(server("node-1", mig()), pods=[busy], pending=[pod("a", "1g.5gb", cpu=8000)]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert "GPUs of 1 node have room" in message
    assert "1 core and" in message
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

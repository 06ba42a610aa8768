"""What is missing on nodes that could hold the pod: partitions, memory, CPU, or slots of pods."""

from dataclasses import replace

import pytest

from controller.explanation.shortfalls import too_little_left
from controller.model.capacity import Capacity
from controller.model.reasons import UnplacedReason
from controller.model.serving import Serving, collect
from controller.planner.board.nodes import NodeCapacity
from controller.simulator.usage import Usage
from partitioning.resources import WHOLE
from tests.builders.models import H100
from tests.controller.explanation.answers import answer_to, held_by_each
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server

ONES = [("1g.10gb", start) for start in range(7)]


@pytest.mark.parametrize(
    ("used", "requests", "limit", "holder_name"),
    [
        pytest.param(
            ONES,
            "1g.10gb",
            "all 7 compute slices are in use",
            "mig-1g.10gb at 1 (team/p1), mig-1g.10gb at 2 (team/p2) and 4 more is released",
            id="the eighth of seven",
        ),
        pytest.param(
            [("1g.10gb+me", 0)],
            "1g.10gb+me",
            "it can hold one instance with media engines (.me)",
            "once mig-1g.10gb.me at 0 (team/p0) is released",
            id="a second one with the media engines",
        ),
        pytest.param(
            [("3g.40gb", 0), ("3g.40gb", 4)],
            "1g.10gb",
            "all 8 memory slices are in use",
            "one of mig-3g.40gb at 0 (team/p0) and mig-3g.40gb at 4 (team/p1) is released",
            id="memory runs out before compute",
        ),
        pytest.param(
            [("4g.40gb", 0)],
            "4g.40gb",
            "3 of its 7 compute slices are free, and the instance needs 4",
            "once mig-4g.40gb at 0 (team/p0) is released",
            id="not enough compute slices left",
        ),
        pytest.param(
            [("1g.10gb", 0), ("1g.10gb", 4)],
            "7g.80gb",
            "5 of its 7 compute slices are free",
            "once 2 partitions are released: mig-1g.10gb at 0 (team/p0) and mig-1g.10gb at 4 (team/p1)",
            id="no release alone helps",
        ),
    ],
)
def test_what_is_used_up_is_named(used: list[tuple[str, int]], requests: str, limit: str, holder_name: str) -> None:
    gpu = held_by_each(mig(gpu_model=H100, used=used))
    # Profiles in the order of their places, as the GPU shows them.
    holders = [holder("node-1", profile, name=f"p{number}") for number, (profile, _) in enumerate(used)]
    reason, message = answer_to(cluster(server("node-1", gpu), pods=holders, pending=[pod("a", requests)]))

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert limit in message
    assert holder_name in message
    assert "the only suitable GPU is in use" in message


def test_one_memory_slice_in_the_singular() -> None:
    gpu = mig(gpu_model=H100, used=[("1g.20gb", 0), ("1g.20gb", 2), ("1g.20gb", 4), ("1g.10gb", 6)])
    snapshot = cluster(
        server("node-1", gpu), pods=[holder("node-1", ("1g.20gb", 3), "1g.10gb")], pending=[pod("a", "1g.10gb")]
    )
    reason, message = answer_to(snapshot)

    assert reason is UnplacedReason.FRAGMENTED
    assert "GPU 0 on node node-1: 1 memory slice of it is free, split by" in message
    assert "once one of mig-1g.20gb at 0 (team/holder), mig-1g.20gb at 2" in message


def test_the_limit_of_mps_clients_is_no_fragmentation() -> None:
    gpu = mps(gpu_model=H100, used_gb=[1] * 48)
    holders = [holder("node-1", ("1gb", 48))]
    reason, message = answer_to(
        cluster(server("node-1", gpu, partitioning="mps"), pods=holders, pending=[pod("a", "10gb")])
    )

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "all 48 MPS clients that it can serve are in use" in message


def test_the_largest_mps_slice_is_named() -> None:
    reason, message = answer_to(
        cluster(server("node-1", mps(gpu_model=H100), partitioning="mps"), pending=[pod("a", "200gb")])
    )

    assert reason is UnplacedReason.NEVER_FITS
    assert "the largest slice is nvidia.com/gpu-84gb (NVIDIA-H100-80GB-HBM3)" in message


def test_where_no_node_is_shared_the_largest_slice_is_one_that_no_pod_can_request_yet() -> None:
    reason, message = answer_to(cluster(server("node-1", mig(gpu_model=H100)), pending=[pod("a", "200gb")]))

    assert reason is UnplacedReason.NEVER_FITS
    assert "the largest slice would be nvidia.com/gpu-84gb (NVIDIA-H100-80GB-HBM3). Add a node" in message


def test_full_with_pods_of_this_very_plan() -> None:
    pending = [pod("first", "7g.40gb", priority=1), pod("a", "1g.5gb")]
    reason, message = answer_to(cluster(server("node-1", mig()), pending=pending))

    assert reason is UnplacedReason.NO_CAPACITY
    assert "The only suitable GPU is taken by pods ahead in the queue." in message
    assert "add a GPU node" in message


def test_gpus_have_space_but_nodes_lack_cpu() -> None:
    busy = pod("busy", cpu=191_000, node_name="node-1")
    reason, message = answer_to(cluster(server("node-1", mig()), pods=[busy], pending=[pod("a", "1g.5gb", cpu=8000)]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert "GPUs have room for 1 nvidia.com/mig-1g.5gb, but their nodes lack CPU: the pod requests 8 CPUs." in message
    assert "The best of 1 node, node-1, has 1 CPU left." in message


def test_what_one_node_lacks_is_not_said_of_all_where_another_has_enough() -> None:
    """A pass that was cut short looked at no place there. The node with most free CPU comes first."""
    demand = collect([pod("a", "1g.5gb", cpu=8000, memory_gib=64)], Serving()).helpable[0]
    sizes = {"node-1": (100, 1), "node-2": (10, 512), "node-3": (9, 2)}
    nodes = [
        (server(name, mig())[0], NodeCapacity(free=Capacity(cpu * 1000, memory << 30, 10), usage=Usage()))
        for name, (cpu, memory) in sizes.items()
    ]

    assert too_little_left(demand, nodes).message.endswith(
        "but this pass found no place on their nodes. The next pass tries again."
    )
    assert "their nodes lack memory" in too_little_left(demand, nodes[::2]).message


def test_pod_slots_are_node_resources_too() -> None:
    busy = pod("busy", node_name="node-1")
    reason, message = answer_to(cluster(server("node-1", mig(), pods=1), pods=[busy], pending=[pod("a", "1g.5gb")]))

    assert reason is UnplacedReason.NO_NODE_RESOURCES
    assert "pod slots" in message


def test_mps_memory_in_use() -> None:
    gpu = mps(gpu_model=H100, used_gb=[40, 30])
    holders = [holder("node-1", "40gb", "30gb")]
    reason, message = answer_to(
        cluster(server("node-1", gpu, partitioning="mps"), pods=holders, pending=[pod("a", "20gb")])
    )

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "team/holder" in message


@pytest.mark.parametrize(
    "partitions",
    [("7g.40gb", "1g.5gb"), (("3g.20gb", 2), "1g.5gb"), ("1g.5gb", "10gb"), ("1g.5gb", WHOLE)],
    ids=["profiles", "several of one", "MIG and MPS", "MIG and a whole GPU"],
)
@pytest.mark.parametrize("used", [(), (("1g.5gb", 0),)], ids=["free", "in use"])
def test_partitions_that_no_node_has_together(
    partitions: tuple[str | tuple[str, int], ...], used: tuple[tuple[str, int], ...]
) -> None:
    both = replace(pod("a", *partitions), most_mps_per_container=1)
    reason, message = answer_to(cluster(server("node-1", mig(used=used)), pending=[both]))

    assert reason is UnplacedReason.NEVER_FITS
    assert message.endswith(" together, only for each alone. Request them in several pods.")


@pytest.mark.parametrize("used", [(), (("1g.5gb", 0),)], ids=["free", "in use"])
def test_several_partitions_of_which_too_many_would_come_from_a_pinned_gpu(used: tuple[tuple[str, int], ...]) -> None:
    gpus = [mig(0, used=used), mig(1, used=used), mig(2, pinned=True, used=[("3g.20gb", 0)])]
    request = ("3g.20gb", 6)
    reason, message = answer_to(cluster(server("node-1", *gpus), pending=[pod("a", request)]))

    assert reason is UnplacedReason.BLOCKED
    assert message.startswith("GPU 2 on node node-1 is fixed in spec.gpus")


def test_several_partitions_of_which_a_pinned_gpu_has_some_in_use() -> None:
    gpus = [mig(0, used=[("1g.5gb", 0)]), mig(1, pinned=True, used=[("3g.20gb", 0)])]
    holders = [holder("node-1", "1g.5gb", "3g.20gb")]
    reason, _ = answer_to(cluster(server("node-1", *gpus), pods=holders, pending=[pod("a", ("3g.20gb", 3))]))

    assert reason is UnplacedReason.WAITS_FOR_RELEASE


def test_ineligible_gpus_are_mentioned_along_with_full_ones() -> None:
    pending = [pod("first", "7g.40gb", priority=1), pod("a", "1g.5gb")]
    servers = server("node-1", mig()), server("node-2", mig(pinned=True))
    reason, message = answer_to(cluster(*servers, pending=pending))

    assert reason is UnplacedReason.NO_CAPACITY
    assert "GPU 0 on node node-2 is fixed in spec.gpus of gpupartitionplan/node-2." in message


def test_cpu_and_memory_that_no_node_has_at_once() -> None:
    servers = server("a", mig(), cpu=400_000, memory_gib=64), server("b", mig(), cpu=8_000, memory_gib=4096)
    reason, message = answer_to(cluster(*servers, pending=[pod("a", "1g.5gb", cpu=100_000, memory_gib=512)]))

    assert reason is UnplacedReason.NEVER_FITS
    assert message == (
        "The pod requests 100 CPUs and 512 GiB of memory; no node with such GPUs has both. Request less of one of them."
    )


@pytest.mark.parametrize("used", [(), (("7g.40gb", 0),)], ids=["the GPU is free", "the GPU is in use"])
def test_a_resource_that_no_node_has_is_not_waited_for(used: tuple[tuple[str, int], ...]) -> None:
    odd = pod("a", "7g.40gb")
    odd = replace(odd, requests=(*odd.requests, ("rdma/hca", 1)))
    there = [holder("node-1", "7g.40gb")] if used else []
    reason, message = answer_to(cluster(server("node-1", mig(used=used)), pods=there, pending=[odd]))

    assert reason is UnplacedReason.NEVER_FITS
    assert message.startswith("The pod requests rdma/hca, of which no node with such GPUs has any. Request none")


@pytest.mark.parametrize("lacking", ["CPU", "a resource"])
@pytest.mark.parametrize(
    ("partitioning", "why"),
    [(None, "Node node-2 is not enabled for gpuplan. Ask"), ("mps", "Node node-2 serves MPS slices only")],
)
def test_what_a_node_has_that_is_not_there_for_such_pods_is_not_said_to_be_on_none(
    lacking: str, partitioning: str | None, why: str
) -> None:
    odd = pod("a", "7g.40gb", cpu=16_000)
    odd = replace(odd, requests=(*odd.requests, ("rdma/hca", 1)))
    gpu = mig() if partitioning is None else mps()
    servers = [
        server("node-1", mig(), cpu=8_000 if lacking == "CPU" else 64_000, allocatable={"rdma/hca": lacking == "CPU"}),
        server("node-2", gpu, cpu=64_000, partitioning=partitioning, allocatable={"rdma/hca": 1}),
    ]
    reason, message = answer_to(cluster(*servers, pending=[odd]))

    assert message.startswith(why)
    assert reason is UnplacedReason.BLOCKED
    elsewhere = replace(odd, node_selector=(("pool", "other"),))
    assert answer_to(cluster(*servers, pending=[elsewhere]))[0] is UnplacedReason.NEVER_FITS

"""Every pod that gets nothing has an answer: why, with names, numbers and what would help."""

from dataclasses import replace

import pytest

from controller.explanation.phrases import counted
from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PartitionView, PlanView, PodView, Requirement
from controller.planning import plan
from partitioning.resources import WHOLE
from tests.controller.planner.builders import H100, cluster, holder, mig, mps, node, pod, server
from tests.controller.planner.checker import check


def answer_to(snapshot: Snapshot, name: str = "a") -> tuple[UnplacedReason, str]:
    result = plan(snapshot)
    check(snapshot, result)
    found: Unplaced = next(one for one in result.unplaced if one.key[1] == name)
    return found.reason, found.full


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        pytest.param(
            pod("a", "1g.10gb+gfx"), "NVIDIA-A100-SXM4-40GB offers mig-1g.5gb, mig-1g.5gb.me, ", id="no such profile"
        ),
        pytest.param(pod("a", ("7g.40gb", 2)), "the largest holds 1 nvidia.com/mig-7g.40gb", id="too many for a node"),
        pytest.param(
            pod("a", "1g.5gb", cpu=200_000),
            "requests 200 CPUs; the largest node with such GPUs has 192. Request less.",
            id="more CPU than a node has",
        ),
        pytest.param(
            pod("a", "1g.5gb", memory_gib=4096),
            "requests 4096 GiB of memory; the largest node with such GPUs has 2048 GiB of memory",
            id="more memory than a node has",
        ),
    ],
)
def test_never_fits(requests: PodView, words: str) -> None:
    reason, message = answer_to(cluster(server("node-1", mig()), pending=[requests]))

    assert reason is UnplacedReason.NEVER_FITS
    assert words in message


def test_no_node_with_gpus() -> None:
    reason, message = answer_to(
        Snapshot(nodes=(node("node-1", partitioning=None, product=""),), pending=(pod("a", "1g.5gb"),))
    )

    assert reason is UnplacedReason.NEVER_FITS
    assert "nvidia.com/gpu.product" in message


def test_the_model_of_a_node_that_has_not_reported() -> None:
    reason, message = answer_to(Snapshot(nodes=(node("node-1", product="NVIDIA-Z9"),), pending=(pod("a", "1g.5gb"),)))

    assert reason is UnplacedReason.AWAITING_AGENT
    assert message.startswith("The node agent on node node-1 has not reported its GPUs yet.")


def test_a_reported_model_that_is_unknown() -> None:
    gpu = replace(mig(), model=None)
    reason, message = answer_to(cluster(server("node-1", gpu, product="NVIDIA-Z9"), pending=[pod("a", "1g.5gb")]))

    assert reason is UnplacedReason.NEVER_FITS
    assert message.startswith("GPU 0 on node node-1 is of an unknown model.")


def test_what_the_scheduler_filters_by_is_named() -> None:
    servers = server("node-1", mig(), taints=["reserved"]), server("node-2", mig(), labels={"zone": "b"})
    zone = Requirement(key="zone", operator="In", values=("a",))
    reason, message = answer_to(cluster(*servers, pending=[pod("a", "1g.5gb", affinity=[zone])]))

    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert message == (
        "None of the 2 suitable nodes accepts this pod: 1 does not match the pod's required node affinity and 1 has "
        "taint reserved:NoSchedule. Change the pod's node affinity. "
        "node-2 does not match the pod's required node affinity. node-1 has taint reserved:NoSchedule."
    )


def test_a_release_that_would_help_is_named() -> None:
    gpu = mig(used=[("7g.40gb", 0)], holder="team/trainer")
    reason, message = answer_to(
        cluster(server("node-1", gpu), pods=[holder("node-1", "7g.40gb", name="trainer")], pending=[pod("a", "1g.5gb")])
    )

    assert reason is UnplacedReason.WAITS_FOR_RELEASE
    assert "GPU 0 on node node-1" in message
    assert "team/trainer" in message


def test_free_but_not_contiguous() -> None:
    gpu = mig(used=[("1g.5gb", 1), ("1g.5gb", 5)])
    holders = [holder("node-1", ("1g.5gb", 2))]
    reason, message = answer_to(cluster(server("node-1", gpu), pods=holders, pending=[pod("a", "3g.20gb")]))

    assert reason is UnplacedReason.FRAGMENTED
    assert "needs 4 adjacent memory slices" in message
    assert "mig-1g.5gb at 1 (team/holder) and mig-1g.5gb at 5 (team/holder)" in message


def held_by_each(gpu: GpuView) -> GpuView:
    """Every partition has a pod of its own."""
    parts = (replace(part, pod=f"team/p{number}") for number, part in enumerate(gpu.partitions))
    return replace(gpu, partitions=tuple(parts))


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
    assert "the largest slice is nvidia.com/gpu-85gb (NVIDIA-H100-80GB-HBM3)" in message


@pytest.mark.parametrize(
    ("state", "expected", "words"),
    [
        pytest.param(
            "Used", UnplacedReason.WAITS_FOR_RELEASE, "GPU 0 on node node-1 is in use as a whole GPU.", id="used"
        ),
        pytest.param(
            "Unknown",
            UnplacedReason.AWAITING_AGENT,
            "may be in use as a whole GPU; the node agent is checking",
            id="unknown",
        ),
        pytest.param(
            "Changing",
            UnplacedReason.AWAITING_AGENT,
            "may be in use as a whole GPU; the node agent is checking",
            id="changing",
        ),
    ],
)
def test_a_gpu_that_may_be_held_whole(state: str, expected: UnplacedReason, words: str) -> None:
    gpu = replace(mps(gpu_model=H100), partitions=(PartitionView(resource=WHOLE, state=state),))
    reason, message = answer_to(cluster(server("node-1", gpu, partitioning="mps"), pending=[pod("a", "10gb")]))

    assert reason is expected
    assert words in message


def test_a_gpu_held_whole_somewhere_on_the_node() -> None:
    trainer = holder("node-1", WHOLE, name="trainer")
    snapshot = cluster(
        server("node-1", mps(gpu_model=H100), partitioning="mps"), pods=[trainer], pending=[pod("a", "10gb")]
    )
    reason, message = answer_to(snapshot)

    assert reason is UnplacedReason.AWAITING_AGENT
    assert "GPU 0 on node node-1 may be in use as a whole GPU" in message


def event(snapshot: Snapshot) -> str:
    """The Event's message of the pod `a`."""
    return next(one.message for one in plan(snapshot).unplaced if one.key[1] == "a")


def test_an_event_names_no_other_pod_and_stays_while_the_cause_does() -> None:
    def full(holder_of_all: str, *used: tuple[str, int]) -> Snapshot:
        gpu = mig(used=used, holder=f"secret/{holder_of_all}")
        pods = [
            replace(holder("node-1", profile, name=f"{holder_of_all}-{n}"), namespace="secret")
            for n, (profile, _) in enumerate(used)
        ]
        return cluster(server("node-1", gpu), pods=pods, pending=[pod("a", "3g.20gb")])

    first = event(full("x", ("4g.20gb", 0), ("3g.20gb", 4)))
    second = event(full("y", ("3g.20gb", 0), ("3g.20gb", 4)))

    assert first == second
    assert "secret" not in first
    assert "it needs 4 adjacent memory slices of one" in first


def test_which_adjacent_slices_must_be_released_is_a_detail() -> None:
    gpu = held_by_each(
        mig(gpu_model=H100, used=[("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 4), ("1g.10gb", 5), ("1g.10gb", 6)])
    )
    holders = [holder("node-1", "1g.10gb", name=f"p{number}") for number in range(5)]
    _, message = answer_to(cluster(server("node-1", gpu), pods=holders, pending=[pod("a", "3g.40gb")]))

    assert (
        "It has room once 2 partitions are released: mig-1g.10gb at 0 (team/p0) and mig-1g.10gb at 1 (team/p1)."
        in message
    )


def test_nodes_of_the_other_kind_are_a_hint_at_most() -> None:
    tainted = server("h1", mig(gpu_model=H100), taints=["team"])
    other = server("m1", mps(gpu_model=H100), partitioning="mps")
    reason, message = answer_to(cluster(tainted, other, pending=[pod("a", "1g.10gb")]))

    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert message == (
        "The only suitable node, h1, has taint team:NoSchedule. Add a toleration for it to the pod. "
        "Node m1 serves MPS slices only (label gpuplan.dev/gpu-partitioning=mps)."
    )


def test_a_taint_of_a_node_of_the_other_kind_is_not_what_keeps_the_pod_waiting() -> None:
    tainted = server("h1", mig(gpu_model=H100), taints=["team"])
    reason, message = answer_to(cluster(tainted, pending=[pod("a", "10gb")]))

    assert reason is UnplacedReason.BLOCKED
    assert message == (
        "Node h1 serves MIG instances only (label gpuplan.dev/gpu-partitioning=mig). "
        "Ask an administrator for a node that serves this kind of partition."
    )


def test_a_silent_agent_comes_before_nodes_of_the_other_kind() -> None:
    silent_node, plan_of_it = server("h1", mig(gpu_model=H100))
    silent = silent_node, replace(plan_of_it, agent_alive=False)
    other = server("m1", mps(gpu_model=H100), partitioning="mps")
    reason, message = answer_to(cluster(silent, other, pending=[pod("a", "1g.10gb")]))

    assert reason is UnplacedReason.AWAITING_AGENT
    assert message.startswith("The node agent on node h1 has stopped responding.")


def paused(name: str, gpu: GpuView) -> tuple[NodeView, PlanView]:
    node, of_it = server(name, gpu)
    return node, replace(of_it, paused=True)


def test_the_nearest_of_several_causes_is_named_with_one_remedy() -> None:
    servers = [
        server("a1", mig(gpu_model=H100), partitioning="mps"),
        server("b1", mig(gpu_model=H100, mig_enabled=False)),
        paused("c1", mig(gpu_model=H100)),
    ]
    reason, message = answer_to(cluster(*servers, pending=[pod("a", "1g.10gb")]))

    assert reason is UnplacedReason.BLOCKED
    assert message == (
        "Changes to node c1 are paused (gpupartitionplan/c1, spec.paused). Ask the owner of the plan to resume it. "
        "MIG mode is off on GPU 0 on node b1. "
        "Node a1 serves MPS slices only (label gpuplan.dev/gpu-partitioning=mps)."
    )


@pytest.mark.parametrize(("number", "expected"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (0.5, "0.5 nodes")])
def test_a_noun_agrees_with_its_number(number: float, expected: str) -> None:
    assert counted(number, "node") == expected


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


def test_partitions_of_both_kinds_at_once() -> None:
    mixed = replace(pod("a", "1g.5gb", "10gb"), most_mps_per_container=1)
    reason, message = answer_to(cluster(server("node-1", mig()), pending=[mixed]))

    assert reason is UnplacedReason.BLOCKED
    assert message


def test_ineligible_gpus_are_mentioned_along_with_full_ones() -> None:
    pending = [pod("first", "7g.40gb", priority=1), pod("a", "1g.5gb")]
    servers = server("node-1", mig()), server("node-2", mig(pinned=True))
    reason, message = answer_to(cluster(*servers, pending=pending))

    assert reason is UnplacedReason.NO_CAPACITY
    assert "GPU 0 on node node-2 is fixed in spec.gpus of gpupartitionplan/node-2." in message

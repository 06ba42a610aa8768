"""Every pod that gets nothing has an answer: why, with names, numbers and what would help."""

import re
from dataclasses import replace
from typing import Any

import pytest

from controller.explanation import explain
from controller.explanation.phrases import counted
from controller.model.reasons import UnplacedReason
from controller.model.scheduling import FilterProfile, NodeSelectorTerm, Requirement
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PartitionView, PlannerOptions, PlanView, PodView
from controller.planning import plan
from partitioning.resources import WHOLE
from tests.builders.models import A100, H100
from tests.controller.explanation.answers import answer_to, held_by_each
from tests.controller.planner.builders import cluster, holder, mig, mps, node, plan_of, pod, replaced, server


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
    assert "label a GPU node gpuplan.dev/gpu-partitioning=mig" in message


def test_the_model_of_a_node_that_has_not_reported() -> None:
    reason, message = answer_to(Snapshot(nodes=(node("node-1", product="NVIDIA-Z9"),), pending=(pod("a", "1g.5gb"),)))

    assert reason is UnplacedReason.AWAITING_AGENT
    assert message.startswith("The node agent on node node-1 has not reported its GPUs yet.")


def test_a_reported_model_that_is_unknown() -> None:
    gpu = replace(mig(), model=None)
    reason, message = answer_to(cluster(server("node-1", gpu, product="NVIDIA-Z9"), pending=[pod("a", "1g.5gb")]))

    assert reason is UnplacedReason.NEVER_FITS
    assert message.startswith("GPU 0 on node node-1 is of an unknown model.")


def test_a_model_without_placements_is_shared_and_given_whole() -> None:
    """As the H20 of a driver that reports no profiles while MIG mode is off."""
    bare = replace(A100, confirmed=False, profiles=tuple(replace(spec, starts=()) for spec in A100.profiles))
    gpu = replace(mig(), model=bare, mig_enabled=False)
    for resource in ("10gb", "nvidia.com/gpu"):
        one = pod("a", resource)
        result = plan(cluster(server("node-1", gpu, partitioning="mps"), pending=[one]))
        assert [place.uid for place in result.placed] == [one.uid], resource

    for label, mode in (("mig", False), ("mig", True), ("mps", False)):
        node_of = server("node-1", replace(gpu, mig_enabled=mode), partitioning=label)
        reason, message = answer_to(cluster(node_of, pending=[pod("a", "1g.5gb")]))
        assert reason is UnplacedReason.BLOCKED
        assert message.startswith("The MIG placements of NVIDIA-A100")
        assert "request an MPS slice or a whole GPU" in message


def test_a_model_with_doubtful_placements_is_not_cut() -> None:
    gpu = replace(mig(), model=replace(A100, confirmed=False))
    reason, message = answer_to(cluster(server("node-1", gpu), pending=[pod("a", "1g.5gb")]))
    assert reason is UnplacedReason.BLOCKED
    assert message.startswith("The MIG placements of GPU 0 on node node-1 are not known")


def test_what_the_scheduler_filters_by_is_named() -> None:
    servers = server("node-1", mig(), taints=["reserved"]), server("node-2", mig(), labels={"zone": "b"})
    zone = Requirement(key="zone", operator="In", values=("a",))
    reason, message = answer_to(cluster(*servers, pending=[pod("a", "1g.5gb", affinity=[zone])]))

    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    both = "does not match the pod's required node affinity and has taint reserved:NoSchedule"
    assert message == (
        "None of the 2 suitable nodes accepts this pod: 1 does not match the pod's required node affinity and 1 "
        f"{both}. Change the pod's node affinity. "
        f"node-2 does not match the pod's required node affinity. node-1 {both}."
    )


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (
            {"filters": ("NodeResourcesFit", "NodeDeclaredFeatures"), "prefilters": ()},
            "n1, fails filter NodeDeclaredFeatures of scheduler other, whose PreFilter is disabled. Change the pod's "
            "schedulerName, or ask an administrator to enable that PreFilter in its profile.",
        ),
        (
            {"filters": ("NodeResourcesFit", "InterPodAffinity"), "prefilters": ()},
            'running "InterPodAffinity" filter plugin: no state from its PreFilter. Change the pod\'s schedulerName, '
            "or ask an administrator to enable that PreFilter in its profile.",
        ),
        (
            {"added_affinity": (NodeSelectorTerm(labels=(Requirement(key="zone", operator="Exists"),)),)},
            "n1, does not match the node affinity that scheduler other adds to all pods. Change the pod's "
            "schedulerName, or ask an administrator to label the node accordingly.",
        ),
    ],
    ids=["no PreFilter", "no PreFilter of one that reads other pods", "added affinity"],
)
def test_what_only_the_schedulers_profile_keeps_off_gets_a_remedy_that_helps(
    profile: dict[str, Any], words: str
) -> None:
    """Nothing in the pod but its schedulerName is in the way."""
    options = PlannerOptions(profiles={"other": FilterProfile(scheduler_name="other", **profile)})
    waits = replaced(pod("a", "1g.5gb"), scheduler_name="other")
    snapshot = cluster(server("n1", mig()), pending=[waits])
    snapshot = replace(snapshot, scheduler_names=frozenset({"default-scheduler", "other"}))

    (missed,) = plan(snapshot, options).unplaced
    helped = plan(replace(snapshot, pending=(replaced(waits, scheduler_name="default-scheduler"),)), options)

    assert words in missed.message
    assert [one.node for one in helped.placed] == ["n1"]


def on(name: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": name}


def four_nodes(*, enabled: str | None = "mig", cordoned: bool = False) -> list[tuple[NodeView, PlanView]]:
    """One cut by MIG, one whose MIG mode is off, one that is not enabled, and one for MPS."""
    first, plan_of_first = server("h1", mig(), labels=on("h1"), partitioning=enabled)
    return [
        (replace(first, unschedulable=cordoned), plan_of_first),
        server("x1", replace(mig(), mig_enabled=False), labels=on("x1"), partitioning="auto"),
        server("plain", mig(), labels=on("plain"), partitioning=None),
        server("m1", mps(), labels=on("m1"), partitioning="mps"),
    ]


@pytest.mark.parametrize(
    ("nodes", "request_", "selects", "words"),
    [
        pytest.param(four_nodes(), "1g.5gb", "plain", "Node plain is not enabled for gpuplan. Ask", id="not enabled"),
        pytest.param(
            four_nodes(enabled=None),
            "1g.5gb",
            "h1",
            "Node h1 is not enabled for gpuplan. Ask",
            id="not enabled any more",
        ),
        pytest.param(four_nodes(cordoned=True), "1g.5gb", "h1", "Node h1 is cordoned. Wait, or ask", id="cordoned"),
        pytest.param(
            four_nodes(cordoned=True), "1g.5gb", "", "Node h1 is cordoned. Wait, or ask", id="cordoned, or MIG mode off"
        ),
        pytest.param(four_nodes(), "10gb", "h1", "Node h1 serves MIG instances only", id="a slice on a MIG node"),
        pytest.param(four_nodes(), "1g.5gb", "m1", "Node m1 serves MPS slices only", id="an instance on an MPS node"),
        pytest.param(four_nodes(), "1g.5gb", "x1", "MIG mode is off on GPU 0 on node x1", id="MIG mode off"),
        pytest.param(four_nodes(), "1g.5gb", "nowhere", "Change the pod's node selector", id="no such node"),
    ],
)
def test_the_remedy_is_about_the_node_that_the_pod_names(
    nodes: list[tuple[NodeView, PlanView]], request_: str, selects: str, words: str
) -> None:
    one = pod("a", request_, selector=on(selects) if selects else None)
    _, message = answer_to(cluster(*nodes, pending=[one]))
    assert words in message
    assert selects == "nowhere" or "Change the pod's node selector" not in message
    sentences = re.split(r"(?<=\.) ", message)
    assert len(sentences) == len(set(sentences))


def test_free_slices_where_the_profile_may_not_start() -> None:
    """Of eight slices four to seven are free, and a 4g may start at 0 alone."""
    gpu = mig(used=[("3g.20gb", 0)])
    holders = [holder("node-1", "3g.20gb")]
    reason, message = answer_to(cluster(server("node-1", gpu), pods=holders, pending=[pod("a", "4g.20gb")]))
    assert reason is UnplacedReason.FRAGMENTED
    assert "but not where it may start: at memory slice 0." in message
    assert "contiguously" not in message


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
    assert "it needs 4 adjacent memory slices on one GPU" in first


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


def test_pods_that_request_thousands_of_things_leave_others_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "LOOKS", 40)
    servers = [server(f"node-{number}", mps(used_gb=[30]), partitioning="mps") for number in range(4)]
    held = [holder(f"node-{number}", "30gb", name=f"on-{number}") for number in range(4)]
    crowd = [pod(f"odd-{gb}", f"{gb}gb", namespace="crowd") for gb in range(13, 38)]
    result = plan(cluster(*servers, pods=held, pending=[*crowd, pod("ours", "12gb", created=9)]))

    found = {one.key[1]: one.message for one in result.unplaced}
    assert "all 4 suitable GPUs are in use" in found["ours"]
    assert 0 < sum(message == explain.UNEXPLAINED.message for message in found.values()) < len(crowd)


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


@pytest.mark.parametrize("partitioning", ["mig", "mps", None])
def test_where_no_node_serves_it_the_remedy_is_about_those_that_the_pod_selects(partitioning: str | None) -> None:
    """A label of another node would not help it."""
    other = server("h1", mig(), labels=on("h1"), partitioning=partitioning)
    own = server("h2", mig(), labels=on("h2"), partitioning=None if partitioning else "mig")
    _, message = answer_to(cluster(other, own, pending=[pod("a", "10gb", selector=on("h2"))]))
    assert "h2" in message
    assert "h1" not in message

    reason, message = answer_to(
        cluster(server("h1", mig(), partitioning=None), pending=[pod("a", "1g.5gb", selector=on("h3"))])
    )
    assert reason is UnplacedReason.FILTERED_BY_SCHEDULER
    assert message.startswith(
        "The only suitable node, h1, does not match the pod's node selector kubernetes.io/hostname=h3. "
        "Change the pod's node selector. Node h1 is not enabled for gpuplan."
    )


@pytest.mark.parametrize("limit", [{"agent_alive": False}, {"paused": True}])
def test_a_cordon_of_the_node_that_the_pod_selects_comes_before_other_nodes(limit: dict[str, bool]) -> None:
    view, plan_of_it = server("h1", mig(), labels=on("h1"))
    cordoned = replace(view, unschedulable=True), replace(plan_of_it, **limit)  # type: ignore[arg-type]  # by field name
    for other in (server("h2", mig(), labels=on("h2")), server("h2", mig(), labels=on("h2"), taints=["team"])):
        _, message = answer_to(cluster(cordoned, other, pending=[pod("a", "1g.5gb", selector=on("h1"))]))
        assert message.startswith("The only suitable node, h1, is cordoned. Wait, or ask an administrator to uncordon")
        assert "h2" not in message
        assert "paused" in message or "stopped responding" in message


def test_that_the_node_which_the_pod_selects_is_not_enabled_comes_before_its_taint_and_other_nodes() -> None:
    own = server("h1", mig(), labels=on("h1"), taints=["team"], partitioning=None)
    _, message = answer_to(
        cluster(own, server("h2", mig(), labels=on("h2")), pending=[pod("a", "1g.5gb", selector=on("h1"))])
    )
    assert message.startswith("Node h1 is not enabled for gpuplan.")
    assert "h2" not in message


def test_the_taint_of_the_node_that_the_pod_selects_is_named_with_its_remedy() -> None:
    own = server("h1", mig(), labels=on("h1"), taints=["team"])
    other = server("h2", mig(), labels=on("h2"))
    _, message = answer_to(cluster(own, other, pending=[pod("a", "1g.5gb", selector=on("h1"))]))
    assert "h1, has taint team:NoSchedule. Add a toleration for it to the pod." in message
    assert "selector" not in message


def test_who_wants_a_whole_gpu_reads_of_no_label_that_it_does_not_need() -> None:
    view = node("n1", partitioning=None, allocatable={WHOLE: 1})
    plain = replace(view, gpu_count=1, unschedulable=True), plan_of("n1")
    _, message = answer_to(cluster(plain, pending=[pod("a", WHOLE)]))
    assert message == "Node n1 is cordoned. Wait, or ask an administrator to uncordon it."


def test_who_holds_an_instance_is_not_named_to_a_pod_that_wants_a_whole_gpu() -> None:
    """Its end makes no GPU whole: MIG mode is on."""
    whole = replace(mps(1), partitions=(PartitionView(resource=WHOLE, state="Used", pod="team/trainer"),))
    cut = mig(0, used=[("7g.40gb", 0)], holder="team/other")
    pods = [holder("n1", WHOLE, name="trainer"), holder("n1", "7g.40gb", name="other")]
    _, message = answer_to(cluster(server("n1", cut, whole, partitioning="auto"), pods=pods, pending=[pod("a", WHOLE)]))
    assert message.endswith("In use by team/trainer.")


def test_a_taint_behind_a_cordon_is_named_as_well() -> None:
    view, plan_of_it = server("h1", mig(), taints=["team"])
    _, message = answer_to(cluster((replace(view, unschedulable=True), plan_of_it), pending=[pod("a", "1g.5gb")]))
    assert message == (
        "The only suitable node, h1, is cordoned and has taint team:NoSchedule. "
        "Wait, or ask an administrator to uncordon the node. Add a toleration for it to the pod."
    )


def test_for_slices_mig_mode_is_in_the_way_and_not_that_placements_are_unknown() -> None:
    gpu = mig(gpu_model=replace(H100, confirmed=False))
    reason, message = answer_to(cluster(server("n1", gpu, partitioning="auto"), pending=[pod("a", "10gb")]))

    assert reason is UnplacedReason.BLOCKED
    assert "`nvidia-smi -i 0 -mig 0`" in message
    assert "Request an MPS slice" not in message


@pytest.mark.parametrize(("number", "expected"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (0.5, "0.5 nodes")])
def test_a_noun_agrees_with_its_number(number: float, expected: str) -> None:
    assert counted(number, "node") == expected

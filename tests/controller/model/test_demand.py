"""Which pods are a demand, which are not, and the reasons of the others."""

from typing import Any

import pytest

from controller.model.demand import demand_of, queue_order
from controller.model.misnamed import about_misnamed, nearest_name
from controller.model.reasons import UnplacedReason
from controller.model.serving import Serving, collect
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from partitioning.models import GpuModel
from partitioning.resources import is_misnamed
from tests.builders.models import A30, H100
from tests.controller.planner.builders import mig, plan_of, pod, replaced

MIG = "1g.5gb"


def collected(*pods: PodView) -> tuple[list[str], list[str], dict[str, UnplacedReason]]:
    found = collect(pods, Serving())
    return (
        [demand.pod.name for demand in found.helpable],
        [demand.pod.name for demand in found.untried],
        {one.key[1]: one.reason for one in found.refused},
    )


def test_a_pod_that_the_scheduler_could_not_place_is_helped() -> None:
    assert collected(pod("a", MIG)) == (["a"], [], {})


def test_one_that_was_not_tried_yet_waits_its_turn() -> None:
    assert collected(pod("a", MIG, unschedulable=False)) == ([], ["a"], {})


@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(pod("a"), id="requests no GPU"),
        pytest.param(
            pod("a", "nvidia.com/gpu", scheduler_name="volcano"), id="requests whole GPUs of another scheduler"
        ),
        pytest.param(replaced(pod("a", MIG), deleting=True), id="is going away"),
    ],
)
def test_these_are_no_demand(candidate: PodView) -> None:
    assert collected(candidate) == ([], [], {})


@pytest.mark.parametrize(
    ("candidate", "reason", "remedy"),
    [
        pytest.param(
            pod("a", "nvidia.com/gpu.shared"), UnplacedReason.NOT_SERVED, "by mps.replicas", id="equal replicas"
        ),
        pytest.param(
            pod("a", "nvidia.com/gpu-0gb"), UnplacedReason.NOT_SERVED, "a slice has at least 1 GB", id="no memory"
        ),
        pytest.param(
            pod("a", ("aliyun.com/gpu-mem", 10)),
            UnplacedReason.NOT_SERVED,
            "or request nvidia.com/gpu-11gb: 1",
            id="ACK memory",
        ),
        pytest.param(
            pod("a", ("10gb", 2), most_mps=2),
            UnplacedReason.NOT_SERVED,
            "one larger slice",
            id="two slices, one container",
        ),
        pytest.param(
            replaced(pod("a", "10gb"), overriding_container="main"),
            UnplacedReason.NOT_SERVED,
            "Container main requests an MPS slice and sets",
            id="its own limits",
        ),
        pytest.param(
            replaced(pod("a", MIG, "10gb"), mixed_container=("nvidia.com/gpu-10gb", "nvidia.com/mig-1g.5gb")),
            UnplacedReason.NOT_SERVED,
            "requests nvidia.com/gpu-10gb and nvidia.com/mig-1g.5gb. Request one kind, or use several containers.",
            id="two kinds, one container",
        ),
        pytest.param(
            replaced(pod("a"), misnamed=("nvidia.com/mig-1g5gb",)),
            UnplacedReason.NOT_SERVED,
            "Did you mean nvidia.com/mig-1g.5gb?",
            id="mistyped",
        ),
        pytest.param(
            replaced(pod("a", MIG), misnamed=("nvidia.com/mig-2g10gb",)),
            UnplacedReason.NOT_SERVED,
            "Did you mean nvidia.com/mig-2g.10gb?",
            id="one of two mistyped",
        ),
        pytest.param(replaced(pod("a", MIG), claims=True), UnplacedReason.NOT_SERVED, "DRA", id="resource claims"),
        pytest.param(
            replaced(pod("a", MIG), scheduler_name="mine"),
            UnplacedReason.NOT_SERVED,
            "setting schedulerNames (default-scheduler)",
            id="another scheduler",
        ),
        pytest.param(
            replaced(pod("a", MIG), scheduling_gates=("example.com/gate",)),
            UnplacedReason.SCHEDULING_GATED,
            "gates",
            id="gated",
        ),
        pytest.param(
            replaced(pod("a", MIG), nominated_node="node-1"),
            UnplacedReason.PREEMPTING,
            "has nominated node node-1 and evicts pods there, or is about to bind it. Wait.",
            id="preempting",
        ),
    ],
)
def test_these_get_a_reason_with_a_remedy(candidate: PodView, reason: UnplacedReason, remedy: str) -> None:
    found = collect([candidate], Serving())

    assert not found.helpable
    (refused,) = found.refused
    assert refused.reason is reason
    assert remedy in refused.message


def test_partitions_alongside_a_whole_gpu_that_a_device_class_maps_are_left_to_dra() -> None:
    both = pod("a", MIG, "nvidia.com/gpu")
    (found,) = collect([both], Serving(dra_resources=frozenset({"nvidia.com/gpu"}))).refused
    assert (found.reason, "DRA serves it" in found.message) == (UnplacedReason.NOT_SERVED, True)
    assert not collect([both], Serving()).refused
    assert not collect([pod("a", MIG)], Serving(dra_resources=frozenset({"nvidia.com/mig-1g.5gb"}))).refused


@pytest.mark.parametrize(
    "misnamed",
    [
        pytest.param({"scheduler_name": "volcano"}, id="of another scheduler"),
        pytest.param({"misnamed": ("nvidia.com/mig-1g.5gb.shared",)}, id="a name that a node offers"),
        pytest.param({"misnamed": ("nvidia.com/gpu-class",)}, id="a name that a DeviceClass maps"),
    ],
)
def test_names_that_others_serve_are_left_to_them(misnamed: dict[str, Any]) -> None:
    one = replaced(pod("a"), **{"misnamed": ("nvidia.com/mig-1g5gb",), **misnamed})
    offered, mapped = frozenset({"nvidia.com/mig-1g.5gb.shared"}), frozenset({"nvidia.com/gpu-class"})

    assert not collect([one], Serving(advertised=offered, dra_resources=mapped)).refused


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("nvidia.com/mig-1g10gb", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-1g-10gb", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-1g.10Gb", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-1g.10gb-me", ""),  # names a profile, even if no model has it
        ("nvidia.com/mig-3g.40g", "nvidia.com/mig-3g.40gb"),
        ("nvidia.com/gpu-10Gi", "nvidia.com/gpu-10gb"),
        ("nvidia.com/gpu-10GB", "nvidia.com/gpu-10gb"),
        ("nvidia.com/gpu-10", "nvidia.com/gpu-10gb"),
        ("nvidia.com/gpu-slice", None),
        ("nvidia.com/gpu-10gb", ""),
        ("nvidia.com/gpu", ""),
        ("nvidia.com/gpu.product", ""),
        ("nvidia.com/1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/MIG-1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-1g.10gb.shared", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me.shared", "nvidia.com/mig-1g.10gb.me"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvidia.com/gpu.10gb", "nvidia.com/gpu-10gb"),
        ("nvidia.con/gpu", "nvidia.com/gpu"),
        ("nvidia/mig-1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("requests.nvidia.com/gpu", "nvidia.com/gpu"),
        ("gpu.nvidia.com/gpu-20gb", "nvidia.com/gpu-20gb"),
        ("nvidia.com/hostdev", ""),
        ("nvidia.com/NVIDIA_A10-12Q", ""),
        ("nvidia.com/GA102GL_A10", ""),
        ("nvidia.com/gpu.shared", ""),
        ("amd.com/gpu", ""),
    ],
)
def test_what_a_name_was_meant_to_be(typed: str, meant: str | None) -> None:
    """'': nothing is wrong with it, or no partition is meant; None: no partition is named like it."""
    assert is_misnamed(typed) == (meant != "")
    if meant != "":
        assert nearest_name(typed) == (meant or "")
        assert (meant or "Request a MIG instance as") in about_misnamed(typed)


@pytest.mark.parametrize(
    ("model", "typed", "meant"),
    [
        (None, "mig-10gb", "Did you mean nvidia.com/mig-2g.10gb?"),
        (A30, "mig-10gb", "Did you mean nvidia.com/mig-1g.6gb?"),
        (A30, "mig-1g10gb", "Did you mean nvidia.com/mig-1g.6gb?"),
        (A30, "gpu.10gb", "Did you mean nvidia.com/gpu-10gb?"),
        (A30, "mig-small-one-please", "such as nvidia.com/mig-1g.6gb, or"),
        (H100, "mig-10gb", "Did you mean nvidia.com/mig-1g.10gb?"),
    ],
)
def test_an_instance_that_is_proposed_is_one_that_gpus_of_the_cluster_have(
    model: GpuModel | None, typed: str, meant: str
) -> None:
    plans = [plan_of(gpus=[mig(gpu_model=model)])] if model is not None else []
    one = replaced(pod("a"), misnamed=(f"nvidia.com/{typed}",))
    (found,) = Snapshot(plans=tuple(plans), pending=(one,)).demands.refused
    assert meant in found.message


@pytest.mark.parametrize(
    ("resource", "words"),
    [("gpumem", "HAMi's"), ("gpucores", "HAMi's"), ("mig-1g.0gb", "Jetson Thor"), ("mig-2g.0gb.gfx", "Jetson Thor")],
)
def test_what_is_of_another_system_is_called_so(resource: str, words: str) -> None:
    assert is_misnamed(f"nvidia.com/{resource}")
    message = about_misnamed(f"nvidia.com/{resource}")
    assert words in message
    assert "Did you mean" not in message
    assert "Request an MPS slice as nvidia.com/gpu-<N>gb" in message


def test_our_own_nomination_is_no_preemption() -> None:
    nominated = replaced(pod("a", MIG), nominated_node="node-1", nomination_ours=True)

    assert collected(nominated) == (["a"], [], {})


def test_two_slices_in_two_containers_are_a_demand() -> None:
    (demand,) = collect([pod("a", ("10gb", 2))], Serving()).helpable

    assert demand.wants == (("nvidia.com/gpu-10gb", 2),)
    assert demand.single is None


def test_the_schedulers_queue_decides_the_order() -> None:
    pods = [pod("late", MIG, created=2), pod("urgent", MIG, created=3, priority=9), pod("early", MIG, created=1)]

    assert collected(*pods)[0] == ["urgent", "early", "late"]
    assert [one.name for one in sorted(reversed(pods), key=queue_order)] == ["urgent", "early", "late"]


def test_a_request_is_taken_apart() -> None:
    requesting = replaced(
        pod("a", "1g.5gb", ("3g.20gb", 2), "nvidia.com/gpu", cpu=2500),
        requests=tuple(
            sorted(
                {
                    "cpu": 2500,
                    "memory": 7,
                    "ephemeral-storage": 9,
                    "nvidia.com/gpu": 1,
                    "nvidia.com/mig-1g.5gb": 1,
                    "nvidia.com/mig-3g.20gb": 2,
                }.items()
            )
        ),
    )
    demand = demand_of(requesting)

    assert demand.wants == (("nvidia.com/gpu", 1), ("nvidia.com/mig-1g.5gb", 1), ("nvidia.com/mig-3g.20gb", 2))
    assert (demand.needs.cpu_milli, demand.needs.memory_bytes) == (2500, 7)
    assert demand.needs.other == (("ephemeral-storage", 9),)

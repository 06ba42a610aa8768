"""What the agent refuses, pauses, or cannot reach: the status reports it, and nothing else stops."""

from typing import Any

import pynvml
import pytest

from partitioning.layouts import Instance
from sandbox.driver.status import Status
from sandbox.driver.store import Store
from tests import faults, incidents
from tests.builders.models import T4
from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.items import mig, mps, operator_pod, replicas, whole
from tests.nodeagent.world import World
from tests.quirks import Quirks

NVML: Any = pynvml
PROFILE_INFO = "nvmlDeviceGetGpuInstanceProfileInfoV"


@pytest.mark.parametrize(
    ("item", "reason", "part"),
    [
        (mig(0, ("3g.40gb", 4), uuid="GPU-0000"), "GPUMismatch", "the plan means GPU-0000"),
        (mig(9, ("3g.40gb", 4)), "NoSuchGPU", "if a card is missing, else remove this index from the plan"),
        (mig(1, ("3g.40gb", 4)), "MIGModeDisabled", "nvidia-smi -i 1 -mig 1"),
        (mig(2, ("3g.40gb", 4)), "MIGNotSupported", "has no MIG"),
        (mps(0, 10), "MIGModeEnabled", "nvidia-smi -i 0 -mig 0"),
        (whole(0), "MIGModeEnabled", "MIG mode is on"),
        (mig(0, ("3g.40gb", 1)), "InvalidLayout", "3g.40gb cannot begin at 1"),
        (mig(0, ("3g.40gb", 4), ("1g.10gb", 5)), "InvalidLayout", "overlap"),
        (mig(0, ("3g.40gb", 0), ("2g.20gb", 2)), "InvalidLayout", "start 2g.20gb at 4, or leave start out"),
        (mig(0, ("4g.40gb", 0), ("7g.80gb", 0)), "InvalidLayout", "no room for all of them, so plan fewer"),
        (mig(0, "3g.40gb*3"), "InvalidLayout", "do not fit"),
        (mps(1, 60, 60), "InvalidLayout", "Lower memoryGB"),
        (replicas(0, 4), "MIGModeEnabled", "neither shared by MPS"),
        (replicas(1, 49), "InvalidLayout", "mps.replicas is 49, and MPS serves 48 clients on this GPU"),
        ({"index": 1, "mps": {"slices": [{"memoryGiB": 4, "threadPercent": 9}]}}, "NotSupported", "threadPercent"),
    ],
)
def test_an_impossible_item_is_refused_with_a_reason_and_stops_nothing_else(
    make_world: MakeWorld, item: dict[str, object], reason: str, part: str
) -> None:
    world = make_world(cut(("2g.20gb", 0)), plain(), (T4, {}), *empty())
    world.apply(item, mig(3, ("4g.40gb", 0)))

    world.settle()

    index = item["index"]
    assert isinstance(index, int)
    assert world.found(index) == ("Failed", reason)
    assert part in world.gpu_status(index)["message"]
    assert world.found(3) == ("Ready", "Confirmed")
    assert world.layout(0) == "2g.20gb at 0"
    assert world.advertised()["nvidia.com/gpu"] == (1 if reason == "MIGModeDisabled" else 2)
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Stalled")["reason"] == reason
    assert ("gpu-node-1", reason) in [(name, found) for name, found, _ in world.events]


def test_another_backend_is_refused(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)))
    world.apply(mig(0, ("7g.80gb", 0)), backend="nvidia")

    world.settle()

    assert world.found() == ("Failed", "NotSupported")
    assert world.layout() == "2g.20gb at 0"


def test_another_backend_is_refused_before_any_gpu_is_planned(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)))
    world.apply(backend="nvidia")

    world.settle()

    for kind, status in (("Ready", "False"), ("Stalled", "True")):
        assert (world.condition(kind)["status"], world.condition(kind)["reason"]) == (status, "NotSupported")


def test_a_paused_plan_changes_nothing_and_reports_it(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)))
    world.apply(mig(0, ("7g.80gb", 0)), paused=True)

    world.settle()

    assert world.layout() == "2g.20gb at 0"
    assert world.found() == ("Changing", "Paused")
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Reconciling")["status"] == "False"
    assert world.condition("Reconciling")["reason"] == "Paused"

    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_pausing_keeps_what_was_confirmed_ready(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()

    world.apply(mig(0, ("7g.80gb", 0)), paused=True)
    world.settle()

    assert world.found() == ("Ready", "Confirmed")
    assert world.condition("Ready")["observedGeneration"] == 2


def test_instances_destroyed_outside_gpuplan_are_created_again(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()
    gpu = world.gpu()
    world.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
    world.driver.destroy_gpu_instance(gpu.uuid, gpu.instances[0])

    world.settle()

    assert world.layout() == "7g.80gb at 0"
    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("paused", [False, True])
def test_a_gpu_that_lost_its_mig_mode_at_a_reboot_is_not_advertised_whole(make_world: MakeWorld, paused: bool) -> None:
    world = make_world(*empty(), plain())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    world.apply(mig(0, ("3g.40gb", 4)), paused=paused)
    world.settle()
    incidents.reboot(world.machine)
    world.restart()

    world.settle()
    assert world.found() == ("Failed", "MIGModeDisabled")
    assert world.advertised() == {"nvidia.com/gpu": 1}

    incidents.enable_mig(world.machine)
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1, "nvidia.com/mig-3g.40gb": 1}
    assert world.found() == ("Ready", "Confirmed")


def test_a_lost_gpu_of_a_paused_plan_is_not_ready(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()
    incidents.lose(world.machine, world.gpu().uuid)
    world.apply(mig(0, ("7g.80gb", 0)), paused=True)

    world.settle()

    assert world.found() == ("Failed", "Unhealthy")
    assert world.condition("Ready")["status"] == "False"


@pytest.mark.parametrize("gone", [True, False])
def test_a_paused_plan_whose_hardware_no_longer_matches_is_not_ready(make_world: MakeWorld, gone: bool) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    world.apply(mig(0, ("3g.40gb", 4)), paused=True)
    world.settle()
    gpu = world.gpu()
    if gone:  # as a reboot of an Ampere leaves it: MIG mode is on, and nothing is cut
        world.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
        world.driver.destroy_gpu_instance(gpu.uuid, gpu.instances[0])
    else:
        made = world.driver.create_gpu_instance(gpu.uuid, Instance(start=0, size=1, profile="1g.10gb"))
        world.driver.create_compute_instance(gpu.uuid, made)

    world.settle()

    assert world.found() == ("Changing", "Paused")
    assert ("3g.40gb at 4 is not there" in world.gpu_status()["message"]) is gone
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Applied")["status"] == "False"


def test_a_desired_instance_with_foreign_compute_instances_is_not_ready(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    gpu = world.gpu()
    world.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
    instance = NVML.nvmlDeviceGetGpuInstanceById(NVML.nvmlDeviceGetHandleByIndex(0), gpu.instances[0].id)
    NVML.nvmlGpuInstanceCreateComputeInstance(instance, 0)

    world.settle()

    assert world.advertised() == {}
    assert world.found()[0] == "WaitingForRelease"
    assert "has compute instances that gpuplan did not create" in world.gpu_status()["message"]
    assert world.gpu_status()["missing"] == ["3g.40gb at 4"]


def test_a_driver_that_fails_is_tried_again_after_pauses(make_world: MakeWorld) -> None:
    world = make_world(*empty(2))
    broken = world.gpu(0).uuid
    symbol = "nvmlDeviceCreateGpuInstanceWithPlacement"
    faults.inject(world.machine, symbol, status=Status.UNKNOWN, times=2, gpu=broken)
    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("7g.80gb", 0)))

    world.run(0.1)
    world.run(0.1)

    assert world.found(0) == ("Failed", "DriverError")
    assert world.layout(1) == "7g.80gb at 0"
    world.settle(20)
    assert world.found(0) == ("Ready", "Confirmed")


def test_a_driver_without_answers_leaves_the_advertised_list_unchanged(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)))
    world.apply()
    world.settle(4)
    faults.inject(world.machine, "nvmlDeviceGetCount_v2", status=Status.UNKNOWN, times=faults.ALWAYS)

    world.settle(3)
    assert world.advertised() == {"nvidia.com/mig-2g.20gb": 1}
    assert world.condition("Ready")["reason"] == "DriverError"

    world.restart()
    world.settle(3)
    assert world.advertised() == {"nvidia.com/mig-2g.20gb": 1}

    faults.clear(world.machine)
    world.settle(3)
    assert world.condition("Ready")["status"] == "True"


def test_nothing_is_partitioned_alongside_nvidias_mig_manager(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)), *empty(), plain())
    key = ("gpu-operator", "nvidia-mig-manager-x")
    world.pods[key] = operator_pod(key[1], {"app": "nvidia-mig-manager"}, "/sys")
    world.kubelet.known.add(key)
    world.apply(mig(0, ("2g.20gb", 0)), mig(1, ("7g.80gb", 0)), mps(2, 10))

    world.settle()
    world.wait(61)  # no pod's process is seen here: that nothing was held before is believed by time

    assert [world.found(index) for index in range(3)] == [
        ("Ready", "Confirmed"),
        ("Failed", "ForeignOwner"),
        ("Ready", "Confirmed"),
    ]
    assert (world.layout(0), world.layout(1)) == ("2g.20gb at 0", "empty")
    assert world.condition("OwnershipConflict")["status"] == "True"
    assert "pod gpu-operator/nvidia-mig-manager-x" in world.condition("OwnershipConflict")["message"]

    del world.pods[key]
    world.kubelet.known.clear()
    world.settle()
    assert world.found(1) == ("Ready", "Confirmed")
    assert world.condition("OwnershipConflict")["status"] == "False"


@pytest.mark.parametrize(("guest", "part"), [(True, "vGPU of a virtual machine (VGPUGuest)"), (False, "names no")])
def test_a_vgpu_of_a_virtual_machine_is_named_and_left_out(make_world: MakeWorld, guest: bool, part: str) -> None:
    world = make_world(*empty(), plain(), quirks=Quirks(vgpu_guest=guest))
    vgpu = world.gpu().uuid
    faults.inject(world.machine, PROFILE_INFO, status=Status.NOT_SUPPORTED, times=faults.ALWAYS, gpu=vgpu)
    world.restart()
    world.apply(mig(0, "1g.10gb"), whole(1))
    world.settle()
    assert world.found() == ("Failed", "Unhealthy")
    assert part in world.gpu_status()["message"]
    assert {device.gpu for device in world.plugin.config.devices} == {world.gpu(1).uuid}
    assert world.found(1) == ("Ready", "Confirmed")


def test_a_driver_that_does_not_know_virtual_machines_costs_the_word_alone(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    faults.inject(world.machine, PROFILE_INFO, status=Status.NOT_SUPPORTED, times=faults.ALWAYS)
    faults.inject(
        world.machine, "nvmlDeviceGetVirtualizationMode", status=Status.FUNCTION_NOT_FOUND, times=faults.ALWAYS
    )
    world.restart()
    world.apply(mig(0, "1g.10gb"))
    world.settle()
    assert "MIG mode is on, and the driver names no GPU instance profile" in world.gpu_status()["message"]


@pytest.mark.parametrize("planned", [True, False])
def test_a_mig_mode_that_ends_with_the_next_reset_is_reported(make_world: MakeWorld, planned: bool) -> None:
    world = make_world(cut(("3g.40gb", 0)), plain())
    world.apply(*([mig(0, ("3g.40gb", 0))] if planned else []))
    world.settle()
    set_pending(world, 0, False)
    world.settle()
    assert world.found()[0] == ("Ready" if planned else "Unmanaged"), "nothing has changed yet"
    message = world.gpu_status()["message"]
    assert "MIG mode is on and becomes off" in message
    assert "nvidia-smi -i 0 -mig 1" in message
    set_pending(world, 0, True)
    world.settle()
    assert "becomes" not in world.gpu_status().get("message", "")


def test_a_mig_mode_that_begins_with_the_next_reset_is_reported(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(whole(0))
    world.settle()
    set_pending(world, 0, True)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert "MIG mode is off and becomes on" in world.gpu_status()["message"]
    world.apply(mig(0, "3g.40gb"))
    world.settle()
    assert world.found() == ("Failed", "MIGModeDisabled")
    assert world.gpu_status()["message"].count("pending") == 1


def set_pending(world: World, index: int, on: bool) -> None:
    with Store(world.machine).writing() as machine:
        machine["gpus"][index]["mig_mode_pending"] = on

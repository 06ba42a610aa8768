"""Pods that hold a GPU under the device id of another device plugin: it is neither cut nor given to a second pod."""

import json
from pathlib import Path

import pytest

from kube.kubelet_api.paths import KubeletPaths
from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.partitions import Partition, mps_partition
from nodeagent.observed.kubelet import CheckpointEntry, Kubelet
from nodeagent.observed.pods import parse_pod
from partitioning.mps import slice_of_gb
from sandbox.driver import processes
from tests.clock import Clock
from tests.drawn import cells
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import Raw, mig, mps, whole
from tests.nodeagent.world import World

GPU, ACK = "nvidia.com/gpu", "aliyun.com/gpu-mem"
OTHER = "example.com/vgpu"
"""A resource of which gpuplan knows nothing."""
GPU_FORMS = [(GPU, "{}::0"), ("nvidia.com/gpu-10gb", "{}::10::0"), (ACK, "{}-_-3"), (OTHER, "{}-7")]
MIG_FORMS = [(THREE, "{}::0"), (f"{THREE}.shared", "{}::1"), (OTHER, "{}-0")]
PLANS: dict[str, tuple[Raw, ...] | None] = {
    "no plan": None,
    "unmanaged": (),
    "whole": (whole(0),),
    "slices": (mps(0, 10, 10),),
}


@pytest.mark.parametrize(("resource", "form"), MIG_FORMS)
@pytest.mark.parametrize("before", [True, False], ids=["before the agent", "later"])
def test_a_mig_device_held_under_another_id_is_kept_and_not_advertised(
    make_world: MakeWorld, resource: str, form: str, before: bool
) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    held = world.gpu().instances[0].uuid
    assert held
    if not before:
        world.settle(4)
    holder = world.pod_of_other_plugin(resource, form.format(held), held, "old")
    world.settle(4)
    assert [device.id for device in world.plugin.config.advertised()] == [world.gpu().instances[1].uuid]

    replace_both(world)
    world.settle(20)

    assert world.layout() == "3g.40gb at 0"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    sentence = f"3g.40gb at 0 is held by pod default/old, which got it as {form.format(held)}"
    assert sentence in world.gpu_status()["message"]
    assert world.partitions() == ["mig-3g.40gb Used"]

    world.finish(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_planned_mig_device_held_under_another_id_waits_for_its_pod(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    held = world.gpu().instances[0].uuid
    assert held
    holder = world.pod_of_other_plugin(THREE, f"{held}::0", held, "old")
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.advertised() == {THREE: 1}
    assert "default/old" in world.gpu_status()["message"]

    world.finish(holder)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert world.advertised() == {THREE: 2}


@pytest.mark.parametrize(("form_of", "plan", "before"), cells(GPU_FORMS, [*PLANS], [True, False]), ids=str)
def test_a_gpu_held_under_another_id_is_not_advertised_in_any_form(
    make_world: MakeWorld, form_of: tuple[str, str], plan: str, before: bool
) -> None:
    resource, form = form_of
    world = make_world(plain())
    apply(world, plan)
    if not before:
        world.settle()
    gpu = world.gpu().uuid
    holder = world.pod_of_other_plugin(resource, form.format(gpu), gpu, "old")

    world.settle(20)

    assert world.advertised() == {}
    if world.plan is not None:
        assert f"is held by pod default/old, which got it as {form.format(gpu)}" in world.gpu_status()["message"]
        assert {text.rpartition(" ")[2] for text in world.partitions()} == {"Used"}
    world.finish(holder)
    world.settle(20)
    assert world.advertised() == ({"nvidia.com/gpu-10gb": 2} if plan == "slices" else {GPU: 1})


@pytest.mark.parametrize("plan", PLANS)
def test_a_gpu_on_which_an_unknown_process_runs_is_not_advertised(make_world: MakeWorld, plan: str) -> None:
    world = make_world(plain())
    processes.attach(world.machine, world.gpu().uuid, 4242, 1)
    apply(world, plan)

    world.settle(20)

    assert world.advertised() == {}
    if world.plan is not None:
        assert "the whole GPU is in use: process 4242 runs on it" in world.gpu_status()["message"]
    processes.detach(world.machine, 4242)
    world.settle(20)
    assert world.advertised() == ({"nvidia.com/gpu-10gb": 2} if plan == "slices" else {GPU: 1})


def test_an_advertised_whole_gpu_stays_advertised_while_its_use_is_not_known(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.settle()
    world.kubelet.age_seconds = 5.0
    world.restart()

    world.settle()

    assert world.advertised() == {GPU: 1}


def test_the_mig_devices_of_a_gpu_that_a_pod_holds_are_kept(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    gpu = world.gpu()
    world.pod_of_other_plugin(OTHER, f"{gpu.uuid}-0", gpu.instances[0].uuid or "", "old")
    replace_both(world)

    world.settle(20)

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert world.advertised() == {}


def test_a_vanished_pod_holds_under_another_id_for_as_long_as_it_runs(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    held = world.gpu().instances[0].uuid
    assert held
    holder = world.pod_of_other_plugin(OTHER, f"{held}-0", held, "old")
    world.settle(4)
    world.force_delete(holder)
    replace_both(world)
    world.settle(20)
    assert world.layout() == "3g.40gb at 0"

    world.end_container(holder)
    world.wait(31)
    assert world.layout() == "7g.80gb at 0"


GPU_ID = "GPU-3c1b0a6e-5f0d-5b0e-8c8e-000000000001-_-0"


def test_the_checkpoint_is_a_witness_for_ids_of_other_resources_on_gpus(make_world: MakeWorld, tmp_path: Path) -> None:
    rows = [
        {"PodUID": "u", "ContainerName": "c", "ResourceName": name, "DeviceIDs": {"-1": [device]}, "AllocResp": ""}
        for name, device in ((OTHER, GPU_ID), ("example.com/nic", "nic-0"))
    ]
    file = KubeletPaths(tmp_path).checkpoint
    file.parent.mkdir()
    file.write_text(json.dumps({"Data": {"PodDeviceEntries": rows, "RegisteredDevices": {}}, "Checksum": 1}))
    assert Kubelet(tmp_path, clock=Clock(), wall_clock=Clock()).checkpoint() == (
        CheckpointEntry(pod_uid="u", ids=(GPU_ID,)),
    )

    world = make_world(plain())
    world.kubelet.entries = (CheckpointEntry(pod_uid="unknown", ids=(f"{world.gpu().uuid}::0",)),)
    world.settle()
    assert world.advertised() == {}
    world.clock.now += 60
    world.settle()
    assert world.advertised() == {GPU: 1}


def test_ids_of_other_resources_are_read_from_the_pods_status() -> None:
    devices = [{"resourceID": GPU_ID}, {"resourceID": "nic-0"}]
    status = {"containerStatuses": [{"allocatedResourcesStatus": [{"name": OTHER, "resources": devices}]}]}
    assert parse_pod({"metadata": {"name": "b"}, "spec": {}, "status": status}).reported == (GPU_ID,)


SLICE = mps_partition("GPU-1", slice_of_gb(10), 1)
DEVICE = Partition(id="MIG-1", resource=THREE, gpu="GPU-1", kind=DeviceKind.MIG)
WHOLE = Partition(id="GPU-1", resource=GPU, gpu="GPU-1", kind=DeviceKind.WHOLE)


@pytest.mark.parametrize(
    ("device_id", "used"),
    [
        ("GPU-1", {SLICE, DEVICE, WHOLE}),
        ("GPU-1::0", {SLICE, DEVICE, WHOLE}),
        ("GPU-1::10gb::1", {SLICE, DEVICE, WHOLE}),
        ("GPU-1::10gb::10", {DEVICE, WHOLE}),
        ("GPU-1::10gb::1::0", {SLICE, DEVICE, WHOLE}),
        ("MIG-1", {DEVICE}),
        ("MIG-1::0", {DEVICE}),
        ("MIG-GPU-1/3/0", {SLICE, DEVICE, WHOLE}),
        ("GPU-2::0", set()),
        ("MIG-2::0", set()),
        ("nic-1", set()),
    ],
)
def test_what_the_holder_of_an_id_may_use(device_id: str, used: set[Partition]) -> None:
    assert {partition for partition in (SLICE, DEVICE, WHOLE) if partition.used_through(device_id)} == used


def apply(world: World, plan: str) -> None:
    items = PLANS[plan]
    if items is not None:
        world.apply(*items)

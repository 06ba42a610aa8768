"""Pods that hold a GPU under an id without a UUID: any partition of the node may be theirs, and nothing is cut."""

import pytest

from nodeagent.hardware.gpu_ids import KNOWN, GpuResources, names_a_device
from nodeagent.observed.pods import parse_pod
from tests.drawn import cells, points
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import mig, mps
from tests.nodeagent.world import World

GPU = "nvidia.com/gpu"
STRANGE = [
    (GPU, "nvidia0"),
    (GPU, "nvidia0/gi1"),
    (GPU, "nvidia0/vgpu0"),
    (GPU, "nvidia0/gi1/vgpu3"),
    (GPU, "tegra"),
    (GPU, "0"),
    (GPU, "GPU-0"),
    (THREE, "0:1"),
    (f"{THREE}.shared", "0:1::2"),
    ("nvidia.com/gpu-a100", "a100-0"),
    ("mig.das.com/3g.40gb", "3g.40gb-1"),
    ("aliyun.com/gpu-mem", "slot-7"),
]
ELSE = [
    ("rdma/hca_shared_devices_a", "0"),
    ("nvidia.com/rdma_shared_device_a", "rdma-3"),
    ("nvidia.com/hostdev", "0000:3b:00.2"),
    ("intel.com/sriov_netdevice", "0000:18:02.5"),
    ("openshift.io/mlnx", "mlx5_1"),
    ("devices.kubevirt.io/kvm", "kvm91"),
    ("devices.kubevirt.io/vhost-net", "vhost-net4"),
    ("nvidia.com/GA102GL_A10", "17"),
    ("smarter-devices/fuse", "fuse-0"),
    ("github.com/fuse", "GPU"),
    ("amd.com/gpu", "0000:83:00.0"),
    ("amd.com/gpu", "amdgpu_xcp_30"),
    ("amd.com/gpu", "AMDGPU-0"),
    ("gpu.intel.com/i915", "card0-1"),
    ("habana.ai/gaudi", "hl-0"),
    ("example.com/slot", "GPU-0"),
    ("example.com/plane", "MIG-29"),
]
"""Network cards, virtual machines, files in user space, and other vendors' accelerators."""
HALVES = ("3g.40gb", 0), ("3g.40gb", 4)


def held(world: World, resource: str, device_id: str) -> tuple[str, str]:
    """By a pod that uses the first MIG instance and is idle."""
    device = world.gpu().instances[0].uuid
    assert device
    return world.pod_of_other_plugin(resource, device_id, device, "old")


@pytest.mark.parametrize(("given", "before"), points(cells(STRANGE, [True, False]), each=3), ids=str)
def test_an_id_that_names_nothing_makes_every_partition_of_the_node_unknown(
    make_world: MakeWorld, given: tuple[str, str], before: bool
) -> None:
    """Held before the agent starts, or later."""
    resource, device_id = given
    world = make_world(cut(*HALVES), cut(("7g.80gb", 0)))
    if not before:
        world.settle(4)
    holder = held(world, resource, device_id)
    world.settle(4)
    assert world.plugin.config.advertised() == (), "the holder's own is on the kubelet's list as free"

    replace_both(world)
    world.settle(20)

    assert [world.layout(index) for index in (0, 1)] == ["3g.40gb at 0, 3g.40gb at 4", "7g.80gb at 0"]
    assert world.partitions() == ["mig-3g.40gb Unknown", "mig-3g.40gb Unknown"]
    assert world.partitions(1) == ["mig-7g.80gb Unknown"]
    assert f"pod default/old holds {device_id}, an id of another device plugin" in world.gpu_status()["message"]

    world.finish(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


@pytest.mark.parametrize(("resource", "device_id"), points(ELSE, each=4))
def test_an_id_of_another_resource_freezes_nothing(make_world: MakeWorld, resource: str, device_id: str) -> None:
    world = make_world(cut(*HALVES))
    key = world.pod_of_other_plugin(resource, device_id, "a device that is no GPU", "other")
    reported = [{"name": resource, "resources": [{"resourceID": device_id}]}]
    world.pods[key]["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = reported
    assert parse_pod(world.pods[key]).reported == ()
    replace_both(world)

    world.settle(20)

    assert world.layout() == "7g.80gb at 0"
    assert world.found() == ("Ready", "Confirmed")


def test_what_a_pod_of_ours_holds_stays_offered_alongside_a_strange_holder(make_world: MakeWorld) -> None:
    world = make_world(cut(*HALVES), plain())
    world.settle(4)
    mine = world.pod(THREE, "mine")
    world.settle(2)
    held(world, GPU, "nvidia1")
    world.settle(6)

    (own,) = world.kubelet.held[mine]["main"][THREE]
    assert [device.id for device in world.plugin.config.advertised()] == [own]


@pytest.mark.parametrize("leaves", ["ended", "force-deleted"])
def test_a_strange_id_is_held_by_its_own_pod_alone(make_world: MakeWorld, leaves: str) -> None:
    world = make_world(plain())
    holder = world.pod_of_other_plugin(GPU, "nvidia0", world.gpu().uuid, "old")
    world.apply(mps(0, 10, 10))
    world.settle()
    assert world.advertised() == {}

    if leaves == "ended":
        world.finish(holder)
    else:
        world.force_delete(holder)
        world.settle()
        assert world.advertised() == {}, "its container may run on"
        world.end_container(holder)
        world.wait(31)
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu-10gb": 2}


def test_the_setting_names_further_resources_of_gpus() -> None:
    listed = GpuResources(("example.com/gpu",))
    assert listed.concerns("example.com/gpu", "7")
    assert not KNOWN.concerns("example.com/gpu", "7")
    raw = {"name": "example.com/gpu", "resources": [{"resourceID": "7"}]}
    status = {"containerStatuses": [{"allocatedResourcesStatus": [raw]}]}
    pod = {"metadata": {"name": "b"}, "spec": {}, "status": status}
    assert parse_pod(pod, listed).reported == ("7",)


@pytest.mark.parametrize(
    ("device_id", "named"),
    [
        ("GPU-3c1b0a6e-5f0d-5b0e-8c8e-000000000001::10gb::1", True),
        ("MIG-3c1b0a6e-5f0d-5b0e-8c8e-000000000001", True),
        ("MIG-GPU-3c1b0a6e-5f0d-5b0e-8c8e-000000000001/3/0", True),
        ("vgpu-GPU-3c1b0a6e-5f0d-5b0e-8c8e-000000000001-_-7", True),
        ("3c1b0a6e-5f0d-5b0e-8c8e-000000000001", False),
        ("GPU-0", False),
        ("", False),
    ],
)
def test_ids_that_name_a_device(device_id: str, named: bool) -> None:
    assert names_a_device(device_id) is named


def test_one_sentence_names_all_partitions_of_a_gpu_that_one_id_concerns(make_world: MakeWorld) -> None:
    world = make_world(cut(*HALVES))
    held(world, GPU, "nvidia0/gi1")
    world.apply(mig(0, *HALVES))
    world.settle()
    assert world.found() == ("WaitingForRelease", "UseUnknown")
    assert world.gpu_status()["message"] == (
        "whether 3g.40gb at 0, 3g.40gb at 4 are in use is not known: pod default/old holds nvidia0/gi1, an id of "
        "another device plugin or driver that names no partition here: any may be in use until it ends"
    )

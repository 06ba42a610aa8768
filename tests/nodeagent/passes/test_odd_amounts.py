"""Amounts that Kubernetes counts differently from how they are written, and amounts that are not all listed."""

import pytest

from tests.nodeagent.conftest import MakeWorld, empty
from tests.nodeagent.items import Raw, mig, pod_json, started
from tests.nodeagent.world import World

SLICE = "nvidia.com/mig-1g.10gb"


def run_pod(world: World, amount: str, *devices: str) -> None:
    """A pod with this amount as its limit, which the kubelet lists with these devices."""
    key = ("default", "odd")
    pod: Raw = pod_json(key, SLICE, 1, uid="uid-odd")
    pod["spec"]["containers"][0]["resources"] = {"limits": {SLICE: amount}, "requests": {SLICE: amount}}
    pod["status"] = started()
    world.pods[key] = pod
    world.kubelet.known.add(key)
    if devices:
        world.kubelet.held[key] = {"main": {SLICE: devices}}


@pytest.mark.parametrize(
    ("amount", "devices", "others"),
    [
        ("1e999", 0, "Free"),  # 0 for Kubernetes: the kubelet gives it no device
        ("1e30", 0, "Free"),
        ("18446744073709551616", 0, "Free"),
        ("18446744073709551617", 1, "Free"),  # 1 for Kubernetes
        ("2", 1, "Unknown"),
    ],
)
def test_the_agent_waits_for_as_many_devices_as_the_kubelet_counts(
    make_world: MakeWorld, amount: str, devices: int, others: str
) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("1g.10gb", 0), ("1g.10gb", 1)))
    world.settle()
    ids = sorted(world.kubelet.devices[SLICE])

    run_pod(world, amount, *ids[:devices])
    world.clock.now += 10
    world.settle()

    expected = [f"mig-1g.10gb {'Used' if number < devices else others}" for number in range(2)]
    assert sorted(world.partitions()) == sorted(expected)


def test_a_partition_whose_use_is_unknown_names_the_pod_on_a_ready_gpu(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("1g.10gb", 0), ("1g.10gb", 1)))
    world.settle()

    run_pod(world, "2", sorted(world.kubelet.devices[SLICE])[0])
    world.clock.now += 10
    world.settle()

    assert (
        "is in use is not known: pod default/odd requests 2 of nvidia.com/mig-1g.10gb" in world.gpu_status()["message"]
    )

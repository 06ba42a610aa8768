"""An instance with a compute instance of fewer multiprocessors: made again when free, reported when used.

mig-manager of 2025 made 1g.20gb with 16 of its 26, and NVIDIA's DRA driver 1g.67gb with 18 of 30.
"""

from typing import Any

import pynvml
import pytest

from partitioning.layouts import Instance
from tests.nodeagent.conftest import MakeWorld, empty
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

NVML: Any = pynvml
RESOURCE = "nvidia.com/mig-1g.20gb"
PLACED = Instance(start=0, size=2, profile="1g.20gb")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    found = make_world(*empty())
    made = found.driver.create_gpu_instance(found.driver.observe_gpu(0).uuid, PLACED)
    instance = NVML.nvmlDeviceGetGpuInstanceById(NVML.nvmlDeviceGetHandleByIndex(0), made)
    NVML.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    return found


def multiprocessors(world: World) -> list[int]:
    return [compute.multiprocessors for instance in world.gpu().instances for compute in instance.compute]


def test_it_is_made_again_while_it_is_free(world: World) -> None:
    assert multiprocessors(world) == [16]
    world.apply(mig(0, ("1g.20gb", 0)))

    world.settle()

    assert multiprocessors(world) == [26]
    assert world.found() == ("Ready", "Confirmed")
    assert world.advertised() == {RESOURCE: 1}
    assert "message" not in world.gpu_status()


def test_it_is_reported_while_a_pod_holds_it_and_made_again_after(world: World) -> None:
    world.settle(4)
    key = world.pod(RESOURCE)
    (held,) = world.running[key]
    world.apply(mig(0, ("1g.20gb", 0)))

    world.settle()

    assert multiprocessors(world) == [16]
    assert {device.id for device in world.plugin.config.advertised()} == {held}
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "made by another program with 16 of its 26 multiprocessors" in world.gpu_status()["message"]
    assert f"pod default/{key[1]}" in world.gpu_status()["message"]

    world.finish(key)
    world.settle()
    assert multiprocessors(world) == [26]
    assert world.found() == ("Ready", "Confirmed")


def test_on_a_gpu_without_an_item_it_is_served_and_reported(world: World) -> None:
    world.apply()

    world.settle()

    assert multiprocessors(world) == [16]
    assert world.advertised() == {RESOURCE: 1}
    assert "16 of its 26 multiprocessors: plan this GPU" in world.gpu_status()["message"]


def test_the_place_of_one_that_is_free_can_be_used_otherwise(world: World) -> None:
    world.apply(mig(0, ("3g.40gb", 0)))

    world.settle()

    assert world.layout() == "3g.40gb at 0"
    assert world.found() == ("Ready", "Confirmed")

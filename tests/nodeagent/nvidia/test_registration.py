"""A registration that the kubelet has lost is reported with a remedy, and never mended by a signal.

A signal would make Unhealthy devices look healthy, and the kubelet lists nothing of either. The world fails where a
plugin that serves its config gets one.
"""

import pytest

from partitioning.nvidia_plugin import NodeConfig
from tests.nodeagent.items import replicas, whole
from tests.nodeagent.nvidia.nvidia_world import SHARED, WHOLE, NvidiaWorld

pytestmark = pytest.mark.slow
READY, TIMEOUT = ("Ready", "Confirmed"), ("Failed", "AdvertiseTimeout")
REMEDY = "read the log of its pod, and delete it where that names no fault"


def plan_whole(world: NvidiaWorld) -> None:
    """From the default to whole GPUs: the same devices under the same name, registered again."""
    world.plan_for(whole(0), whole(1), config=NodeConfig())


def assert_reported_only(world: NvidiaWorld) -> None:
    found = world.pass_by(1000)
    assert found <= {("Advertising", "Advertising"), TIMEOUT}
    assert world.found() == TIMEOUT
    assert REMEDY in world.gpu_status()["message"]
    assert (world.sighups, world.tainted()) == ([], False)


def recreate_the_pod(world: NvidiaWorld) -> None:
    world.end("plugin")
    world.start("plugin")
    world.until(READY, seconds=120)


def test_a_registration_that_is_lost_in_a_switch_is_reported_and_the_node_opened(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until_lost()
    assert_reported_only(world)
    assert world.taints() == 1
    recreate_the_pod(world)


def test_that_of_replicas_is_reported_too(world: NvidiaWorld) -> None:
    for count in (4, 2):
        items = [replicas(index, count, renameByDefault=False) for index in (0, 1)]
        world.plan_for(*items, config=NodeConfig(replicas=count))
        if count == 4:
            world.until(READY)
            world.sighups.clear()
    world.until_lost()
    world.pass_by(1000)
    assert world.found() == TIMEOUT
    assert "nvidia-device-plugin" not in world.sighups
    assert not world.tainted()
    recreate_the_pod(world)


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_is_lost_after_it_was_confirmed_is_reported_and_closes_nothing(
    world: NvidiaWorld, restarted: bool
) -> None:
    plan_whole(world)
    world.until(READY)
    closed = world.taints()
    for resource in (WHOLE, SHARED):
        world.kubelet.devices[resource] = ()
    if restarted:
        world.restart()
    assert_reported_only(world)
    assert world.taints() == closed


def test_the_next_start_of_a_plugin_that_loses_its_registration_closes_nothing(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until(READY)
    closed = world.taints()
    world.loses = 1
    world.load(world.loaded)
    assert_reported_only(world)
    assert world.taints() == closed

"""Equal MPS replicas: named as NVIDIA's device plugin names them, and changed only while no container holds one."""

import pytest

from nodeagent.handover.config import DeviceKind
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.items import mps, replicas, whole
from tests.nodeagent.world import World

SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"


def ids(world: World) -> list[str]:
    """Offered replicas, without the GPU's UUID."""
    found = [device for device in world.plugin.config.advertised() if device.kind is DeviceKind.MPS]
    return sorted(device.id.partition("::")[2] for device in found)


@pytest.mark.parametrize(("more", "resource"), [({}, SHARED), ({"renameByDefault": False}, GPU)])
def test_a_gpu_becomes_replicas(make_world: MakeWorld, more: dict[str, bool], resource: str) -> None:
    world = make_world(plain())
    world.apply(replicas(0, 4, **more))
    world.settle()

    assert world.advertised() == {resource: 4}
    assert ids(world) == ["0", "1", "2", "3"]
    assert {(device.memory_mib, device.thread_percent) for device in world.plugin.config.devices} == {(20389, 25)}
    assert world.found() == ("Ready", "Confirmed")
    assert world.status()["summary"] == {"mode": "Auto", "mps": "0/4"}


def test_replicas_change_only_while_no_container_holds_one(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(replicas(0, 4))
    world.settle()
    holder = world.pod(SHARED, device=f"{world.gpu().uuid}::2")

    world.apply(replicas(0, 2))
    world.settle()

    assert ids(world) == ["2"]
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.gpu_status()["message"] == "MPS replica number 2 is held by pod default/p1"
    assert world.gpu_status()["missing"] == ["MPS replica", "MPS replica"]

    world.finish(holder)
    world.settle()
    assert ids(world) == ["0", "1"]
    assert {device.memory_mib for device in world.plugin.config.devices} == {40779}
    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("before", [whole(0), mps(0, 10, 20), replicas(0, 3, renameByDefault=False)])
def test_what_was_there_before_is_gone_first(make_world: MakeWorld, before: dict[str, object]) -> None:
    world = make_world(plain())
    world.apply(before)
    world.settle()
    holder = world.pod(next(iter(world.advertised())))

    world.apply(replicas(0, 2))
    for _ in range(8):
        world.run()
        assert sum(device.memory_mib for device in world.plugin.config.advertised()) <= 81559
        assert SHARED not in world.advertised()

    world.finish(holder)
    world.settle()
    assert world.advertised()[SHARED] == 2
    assert world.found() == ("Ready", "Confirmed")


def test_a_pod_of_another_plugin_with_such_an_id_keeps_the_gpu(make_world: MakeWorld) -> None:
    world = make_world(plain())
    uuid = world.gpu().uuid
    holder = world.pod_of_other_plugin(SHARED, f"{uuid}::0", uuid, "old")
    world.apply(replicas(0, 4))

    world.settle()
    assert SHARED not in world.advertised()
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")

    world.finish(holder)
    world.settle()
    assert world.advertised() == {SHARED: 4}


def test_several_per_container_wait_for_a_plugin_that_can_limit_them(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.plugin.knows_mergeable = False
    world.apply(replicas(0, 4, failRequestsGreaterThanOne=False))
    world.settle()
    assert set(world.plugin.config.unhealthy) == {f"{world.gpu().uuid}::{number}" for number in range(4)}

    world.plugin.knows_mergeable = True
    world.settle()
    assert not world.plugin.config.unhealthy
    assert world.found() == ("Ready", "Confirmed")

"""Equal MPS replicas: named as NVIDIA's device plugin names them, and changed only while no container holds one."""

from collections.abc import Callable

import pytest

from nodeagent.handover.config import DeviceKind
from sandbox.driver.store import Store
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.items import mps, replicas, whole
from tests.nodeagent.world import World

SHARED, GPU, GB20 = "nvidia.com/gpu.shared", "nvidia.com/gpu", "nvidia.com/gpu-20gb"


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
    assert world.status()["summary"]["mps"] == "0/4"


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


def lose_the_config(world: World) -> None:
    world.state.plugin.config.unlink()
    world.restart()


def miss_the_gpu_for_one_pass(world: World) -> None:
    with Store(world.machine).writing() as machine:
        gone = machine["gpus"].pop(0)
    world.run()
    with Store(world.machine).writing() as machine:
        machine["gpus"].insert(0, gone)


@pytest.mark.parametrize("loss", [lose_the_config, miss_the_gpu_for_one_pass])
@pytest.mark.parametrize(
    ("item", "resource", "count"),
    [(replicas(0, 4), SHARED, 4), (replicas(0, 3, renameByDefault=False), GPU, 3), (mps(0, 10, 20, 20), GB20, 2)],
)
def test_what_is_held_and_what_is_free_comes_back_after_a_loss(
    make_world: MakeWorld, loss: Callable[[World], None], item: dict[str, object], resource: str, count: int
) -> None:
    world = make_world(plain(), plain())
    world.apply(item, whole(1))
    world.settle()
    mine = [d.id for d in world.plugin.config.devices if (d.gpu, d.resource) == (world.gpu().uuid, resource)]
    held = world.pod(resource, device=mine[-1])
    world.settle(4)
    before = world.plugin.config.devices

    loss(world)
    world.settle()

    assert world.advertised()[resource] == count + (resource == GPU)
    assert world.plugin.config.devices == before
    assert world.found() == ("Ready", "Confirmed")
    world.finish(held)
    world.settle()
    assert [p.rpartition(" ")[2] for p in world.partitions()] == ["Free"] * len(world.partitions())


def test_replicas_of_another_number_wait_for_the_holder_also_after_a_loss(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(replicas(0, 2))
    world.settle()
    world.pod(SHARED)
    world.apply(replicas(0, 4))
    lose_the_config(world)

    world.settle()

    assert world.advertised().get(SHARED, 0) == 0
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "held by pod default/p1, which got it as GPU-" in world.gpu_status()["message"]


def test_a_replica_of_another_plugin_is_not_taken_for_one_that_was_lost(make_world: MakeWorld) -> None:
    """As where NVIDIA's plugin was tried for a while, and its pods run on."""
    world = make_world(plain())
    world.apply(replicas(0, 4))
    world.settle()
    uuid = world.gpu().uuid
    holder = world.pod_of_other_plugin(SHARED, f"{uuid}::7", uuid, "tried")

    world.settle()

    assert SHARED not in world.advertised()
    world.finish(holder)
    world.settle()
    assert world.advertised() == {SHARED: 4}

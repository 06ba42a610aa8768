"""MPS slices and whole GPUs: they exist in the plugin's config only, and one in use is never dropped."""

import pytest

from nodeagent.handover.config import DeviceKind, Problem
from sandbox.driver import processes
from sandbox.driver.status import Status
from tests import faults, incidents
from tests.builders.models import T4
from tests.drawn import points
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.items import mps, whole
from tests.nodeagent.world import World

TEN, TWENTY = "nvidia.com/gpu-10gb", "nvidia.com/gpu-20gb"


def ids(world: World) -> list[str]:
    """Offered MPS slices, without the GPU's UUID."""
    found = [device for device in world.plugin.config.advertised() if device.kind is DeviceKind.MPS]
    return sorted(device.id.partition("::")[2] for device in found)


def test_a_whole_gpu_becomes_slices(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.settle(3)
    assert world.advertised() == {"nvidia.com/gpu": 1}

    world.apply(mps(0, 10, 10, 20))
    world.settle()

    assert world.advertised() == {TEN: 2, TWENTY: 1}
    assert ids(world) == ["10gb::0", "10gb::1", "20gb::0"]
    assert world.found() == ("Ready", "Confirmed")
    assert world.status()["summary"]["mps"] == "0/3"
    memory = {device.id.partition("::")[2]: device.memory_mib for device in world.plugin.config.devices}
    assert memory == {"10gb::0": 9536, "10gb::1": 9536, "20gb::0": 19073}


def test_a_gpu_that_a_pod_holds_whole_is_never_sliced(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.settle(3)
    holder = world.pod("nvidia.com/gpu")
    world.apply(mps(0, 10))

    world.settle()

    assert world.advertised() == {"nvidia.com/gpu": 1}
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.gpu_status()["message"] == "the whole GPU is held by pod default/p1"
    assert world.gpu_status()["missing"] == ["MPS slice 10gb"]

    world.finish(holder)
    world.settle()
    assert world.advertised() == {TEN: 1}


def test_a_process_without_a_pod_keeps_the_gpu_whole(make_world: MakeWorld) -> None:
    world = make_world(plain())
    processes.attach(world.machine, world.gpu().uuid, 77, 100)
    world.apply(mps(0, 10))

    world.settle()

    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "process 77" in world.gpu_status()["message"]
    assert world.advertised() == {}


def test_slices_keep_their_ids_and_new_ones_take_the_lowest_free_number(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 10, 10))
    world.settle()
    uuid = world.gpu().uuid
    world.pod(TEN, device=f"{uuid}::10gb::2")

    world.apply(mps(0, 10))
    world.settle()
    assert ids(world) == ["10gb::2"]

    world.apply(mps(0, 10, 10, 10, 20))
    world.settle()
    assert ids(world) == ["10gb::0", "10gb::1", "10gb::2", "20gb::0"]
    assert world.found() == ("Ready", "Confirmed")
    assert world.partitions() == ["gpu-10gb Free", "gpu-10gb Free", "gpu-10gb Used", "gpu-20gb Free"]


def test_a_slice_in_use_stays_and_the_rest_is_changed(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 20))
    world.settle()
    holder = world.pod(TWENTY)
    world.apply(mps(0, 40))

    world.settle()

    assert ids(world) == ["20gb::0", "40gb::0"]
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.gpu_status()["message"] == "MPS slice 20gb number 0 is held by pod default/p1"

    world.finish(holder)
    world.settle()
    assert ids(world) == ["40gb::0"]
    assert world.found() == ("Ready", "Confirmed")


def test_memory_is_never_advertised_twice(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 40, 40))
    world.settle()
    world.pod("nvidia.com/gpu-40gb")
    world.apply(mps(0, 20, 20, 20, 20))

    for _ in range(12):
        world.run()
        advertised = sum(device.memory_mib for device in world.plugin.config.devices)
        assert advertised <= world.gpu().model.memory_mib  # type: ignore[union-attr]  # an H100 is known

    assert ids(world) == ["20gb::0", "20gb::1", "40gb::0"]
    assert world.gpu_status()["missing"] == ["MPS slice 20gb", "MPS slice 20gb"]


def test_slices_become_whole_once_all_are_free(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 20))
    world.settle()
    holder = world.pod(TEN)
    world.apply(whole(0))

    world.settle()
    assert ids(world) == ["10gb::0"]

    world.finish(holder)
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1}
    assert world.found() == ("Ready", "Confirmed")


def test_other_threads_keep_the_slice_and_its_id(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, threads=10))
    world.settle()
    world.pod(TEN)

    world.apply(mps(0, 10, threads=25))
    world.settle()

    assert [(d.id.partition("::")[2], d.thread_percent) for d in world.plugin.config.advertised()] == [("10gb::0", 25)]
    assert world.found() == ("Ready", "Confirmed")


def test_an_empty_list_of_slices_advertises_nothing(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.settle(3)
    world.apply(mps(0))

    world.settle()

    assert world.advertised() == {}
    assert world.found() == ("Ready", "Confirmed")
    world.kubelet.refuses = "RESOURCE_EXHAUSTED"
    world.settle()
    assert world.found() == ("Ready", "Confirmed"), "what may be in use is in the way of nothing"


def test_slices_outlive_a_lost_config_while_pods_hold_them(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 20))
    world.settle()
    world.pod(TWENTY)
    world.state.plugin.config.unlink()
    world.restart()
    world.apply(whole(0))

    world.settle()

    assert ids(world) == ["20gb::0"]
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")


def test_mps_clients_without_a_pod_keep_every_slice(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 20))
    world.settle()
    processes.attach(world.machine, world.gpu().uuid, 88, 100, mps=True)
    world.apply(whole(0))

    world.settle()

    assert ids(world) == ["10gb::0", "20gb::0"]
    assert world.found() == ("WaitingForRelease", "UseUnknown")
    assert "MPS client process 88" in world.gpu_status()["message"]


def test_the_mps_client_of_one_slice_does_not_cast_doubt_on_the_others(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 20))
    world.settle()
    holder = world.pod(TWENTY)
    processes.attach(world.machine, world.gpu().uuid, world.pid(holder), 100, mps=True)

    world.settle(10)
    assert world.partitions() == ["gpu-10gb Free", "gpu-20gb Used"]

    world.apply(mps(0, 20))
    world.settle()
    assert ids(world) == ["20gb::0"]
    assert world.found() == ("Ready", "Confirmed")


def test_a_gpu_that_was_never_read_by_this_agent_keeps_its_slices(make_world: MakeWorld) -> None:
    world = make_world(plain(), plain())
    world.apply(mps(0, 10, 20), mps(1, 40))
    world.settle()
    world.pod(TWENTY)
    world.run()
    before = ids(world)
    lost = world.gpu(0).uuid
    incidents.lose(world.machine, lost)
    faults.inject(world.machine, "nvmlDeviceGetUUID", status=Status.GPU_IS_LOST, times=faults.ALWAYS, gpu=lost)
    world.restart()

    world.settle()

    assert world.found(0) == ("Failed", "Unhealthy")
    assert ids(world) == before


def test_a_daemon_that_does_not_start_is_reported_for_its_gpu_only(make_world: MakeWorld) -> None:
    world = make_world(plain(), (T4, {}))
    world.plugin.problems = (Problem(gpu=world.gpu(0).uuid, message="the MPS control daemon did not start"),)
    world.apply(mps(0, 10), mps(1, 5))

    world.settle()
    assert world.found(0) == ("Advertising", "DevicePluginError")
    assert world.found(1) == ("Ready", "Confirmed")

    world.settle(70)
    assert world.found(0) == ("Failed", "DevicePluginError")
    assert "did not start" in world.gpu_status(0)["message"]


def test_a_daemon_that_does_not_start_does_not_close_the_node(make_world: MakeWorld) -> None:
    world = make_world(plain(), plain())
    world.apply(mps(0, 10), mps(1, 20, 20))
    world.settle()
    world.plugin.unready = {world.gpu(0).uuid}
    world.apply(mps(0, 10), mps(1, 20))

    world.settle()

    assert world.advertised() == {TWENTY: 1}
    assert "taint True" in world.effect.done
    assert not world.tainted()


@pytest.mark.parametrize("passes", points(range(1, 8), each=3))
def test_a_plan_that_changes_at_any_moment_ends_as_its_newest_version(make_world: MakeWorld, passes: int) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10, 10))
    world.settle()
    world.apply(whole(0))
    world.settle(passes)

    world.apply(mps(0, 10, 10))
    world.settle()

    assert ids(world) == ["10gb::0", "10gb::1"]
    assert world.found() == ("Ready", "Confirmed")

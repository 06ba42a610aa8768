"""What an earlier reading of a GPU must not decide: that a device is there still, or that nothing runs on it."""

import pytest

from nodeagent.handover.seen_free import read_seen_free
from sandbox.driver import processes
from sandbox.driver.status import Status
from sandbox.driver.store import Store
from tests import faults
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

HALVES = [("3g.40gb", 0), ("3g.40gb", 4)]
THREE = "nvidia.com/mig-3g.40gb"


@pytest.fixture
def settled(make_world: MakeWorld) -> World:
    world = make_world(cut(*HALVES))
    world.apply(mig(0, *HALVES))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    return world


def passes(world: World, seconds: float) -> None:
    until = world.clock.now + seconds
    while world.clock.now < until:
        world.step(max(world.pass_only(), 0.1))


def test_none_outlasts_a_driver_that_was_away(settled: World) -> None:
    """The instances go with the driver's module."""
    passes(settled, 30)
    faults.inject(settled.machine, "nvmlDeviceGetCount_v2", status=Status.UNKNOWN, times=faults.ALWAYS)
    for _ in range(15):
        settled.run(1.0)
    with Store(settled.machine).writing() as machine:
        machine["gpus"][0]["gpu_instances"] = []
    faults.clear(settled.machine)

    settled.pass_only()
    settled.step()

    there = {instance.uuid for instance in settled.gpu().instances}
    assert set(settled.kubelet.devices[THREE]) <= there


def test_none_is_used_again_that_lacks_the_processes(settled: World) -> None:
    """Whether a partition is in use is not left unknown for longer than the driver leaves it so."""
    faults.inject(
        settled.machine,
        "nvmlDeviceGetComputeRunningProcesses_v3",
        status=Status.UNKNOWN,
        times=faults.ALWAYS,
    )
    passes(settled, 70)
    assert "is not known" in settled.gpu_status()["message"]
    faults.clear(settled.machine)

    settled.pass_only()

    assert settled.gpu_status().get("message") is None


def test_none_says_that_a_device_is_free_again(settled: World) -> None:
    """The plugin offers a marked device to a kubelet that may have forgotten its holder."""
    key = settled.pod(THREE)
    (device,) = settled.running[key]
    processes.detach(settled.machine, settled.pid(key))
    passes(settled, 45)
    processes.attach(settled.machine, device, 4242, 100)
    settled.finish(key)

    passes(settled, 5)
    assert device not in read_seen_free(settled.state.plugin).allocations

    processes.detach(settled.machine, 4242)
    passes(settled, 70)
    assert device in read_seen_free(settled.state.plugin).allocations

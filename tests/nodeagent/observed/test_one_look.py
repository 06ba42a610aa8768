"""One look at the open files serves every device: reading them takes half a second on a busy node."""

from collections.abc import Collection

import pytest

from nodeagent.cdi.device_numbers import numbers_of, read_device_numbers
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.processes import DeviceNumber, Process
from sandbox.driver.procfs import proc_of
from tests.drawn import cells
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.world import World

SEVENTH = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Seven pods with a device each."""
    found = make_world(cut(*(("1g.10gb", start) for start in range(7))))
    found.settle(6)
    for _ in range(7):
        found.pod(SEVENTH)
    found.settle()
    return found


def open_some(world: World, devices: Collection[str], *, known: bool) -> list[frozenset[DeviceNumber]]:
    """Another process has these open, and perhaps others; returns each look that there will be."""
    numbers = numbers_of(devices, NvmlDriver().observe(), read_device_numbers(proc_of(world.machine)))
    opened = frozenset[DeviceNumber]().union(*(found or () for found in numbers.values()))
    looks: list[frozenset[DeviceNumber]] = []

    def look(asked: Collection[DeviceNumber]) -> tuple[Process, ...]:
        looks.append(frozenset(asked))
        theirs = opened.intersection(asked)
        process = Process(pid=4711, program="dockerd", up_seconds=10**9, opened=theirs if known else None)
        return (process,) if theirs else ()

    world.holders = look  # type: ignore[method-assign,assignment]
    return looks


@pytest.mark.parametrize(("opened", "end", "known"), cells([0, 1, 7], ["finished", "deleted by force"], [True, False]))
def test_one_look_serves_all_pods_that_end_at_once(world: World, end: str, opened: int, known: bool) -> None:
    devices = sorted(i for ids in world.running.values() for i in ids)
    looks = open_some(world, devices[:opened], known=known)
    for holder in tuple(world.running):
        if end == "finished":
            world.finish(holder)
        else:
            world.force_delete(holder, seen_by_driver=False)
            world.end_container(holder)
    for seconds in (5, 31, 31):
        del looks[:]
        world.run(seconds)
        assert len(looks) <= 1
    keeps = set(devices[:opened] if known or not opened else devices)
    assert set(world.agent.observer.observe().usage.left) == keeps


@pytest.mark.parametrize("opened", [0, 1, 7])
def test_one_look_serves_all_devices_that_no_record_names(world: World, opened: int) -> None:
    devices = sorted(i for ids in world.running.values() for i in ids)
    world.clock.now += 5
    for holder in tuple(world.running):
        world.force_delete(holder, seen_by_driver=False)
        world.end_container(holder)
    late = [world.pod(SEVENTH, device=device) for device in devices]
    looks = open_some(world, devices[:opened], known=True)
    world.restart()
    for _ in range(8):
        del looks[:]
        world.run(15)
        assert len(looks) <= 1
    assert {i for key in late if key in world.waiting for i in world.waiting[key]} == set(devices[:opened])

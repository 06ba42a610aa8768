"""A process outside of all pods is left of a pod that no record names: it keeps the device from all that come next."""

import pytest

from tests.drawn import cells, points
from tests.nodeagent.conftest import MakeWorld
from tests.nodeagent.observed.gone import open_files
from tests.nodeagent.observed.test_came_and_went import Key, holder_of
from tests.nodeagent.observed.test_two_looks import offered
from tests.nodeagent.world import World

UNITS = pytest.mark.parametrize("unit", ["mig", "whole"])
BEGAN = "2026-11-27T12:00:00Z"
"""Of the next pod: the process is older."""


def left_while_no_agent_ran(
    make_world: MakeWorld, unit: str, *, lost: bool, began_seconds: float = 0.0
) -> tuple[World, str, str]:
    """A pod came, had a process made outside, and went. Returns its device and the device's resource."""
    world, holder, number = holder_of(make_world, unit)
    (device,) = world.running[holder]
    resource = world.plugin.allocations[device].resource
    world.settle()
    world.finish(holder)
    world.settle()
    del world.pods[holder]
    world.settle()
    unseen = world.pod(resource, device=device)
    world.clock.now += 5
    open_files(world, number, up_seconds=began_seconds or world.clock.now, began_at=1.0)
    world.clock.now += 5
    world.force_delete(unseen, seen_by_driver=False)
    world.end_container(unseen)
    if lost:
        world.state.plugin.ledger.unlink()
        world.plugin.restart()
    return world, device, resource


def end(world: World, key: Key, how: str) -> None:
    """Of a pod that waits for its device, or that the kubelet has no device for."""
    world.waiting.pop(key, None)
    if how == "finished":
        world.forget(key)
        world.pods[key]["status"] = {"phase": "Failed", "startTime": BEGAN}
    elif how == "deleted":
        world.pods[key]["metadata"]["deletionTimestamp"] = "2026-11-27T12:01:00Z"
        world.run()
        world.force_delete(key, seen_by_driver=False)
    else:
        world.force_delete(key, seen_by_driver=False)


@UNITS
@pytest.mark.parametrize(
    ("how", "lost"), points(cells(["finished", "deleted", "deleted by force"], [False, True]), each=2)
)
def test_the_end_of_the_pod_that_waits_for_the_process_frees_nothing(
    make_world: MakeWorld, unit: str, how: str, lost: bool
) -> None:
    world, device, resource = left_while_no_agent_ran(make_world, unit, lost=lost)
    late = world.pod(resource, device=device)
    world.pods[late]["status"]["startTime"] = BEGAN
    world.restart()
    world.wait(15, times=4)
    assert late not in world.running
    # Where the ledger is lost, too, the kubelet has it from no list.
    assert world.waiting.get(late) == (None if lost else (device,))
    end(world, late, how)
    world.wait(15, times=8)
    assert not offered(world, device)

    open_files(world)
    world.wait(15, times=6)
    assert offered(world, device)


@UNITS
@pytest.mark.parametrize("lost", [False, True])
def test_the_process_of_a_pod_that_no_agent_saw_keeps_the_device_from_the_next_one(
    make_world: MakeWorld, unit: str, lost: bool
) -> None:
    """The kubelet gives it to no one for some minutes, in which the Allocate that no pod came with is given up."""
    world, device, resource = left_while_no_agent_ran(make_world, unit, lost=lost)
    world.restart()
    world.wait(15, times=12)
    late = world.pod(resource, device=device)
    world.wait(15, times=8)
    assert late not in world.running
    world.waiting.pop(late, None)
    world.force_delete(late, seen_by_driver=False)
    open_files(world)
    world.wait(15, times=6)
    assert offered(world, device)


@UNITS
def test_what_is_older_than_an_allocate_that_no_pod_came_with_keeps_nothing(make_world: MakeWorld, unit: str) -> None:
    world, device, resource = left_while_no_agent_ran(make_world, unit, lost=False, began_seconds=0.25)
    world.restart()
    world.wait(15, times=4)
    late = world.pod(resource, device=device)
    assert world.running[late] == (device,)

"""No record names the pod that had a device first: a process outside of all pods keeps the next one waiting."""

import pytest

from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.kubelet import NoAnswer
from sandbox.driver.procfs import MAJORS, capability_minor
from tests.drawn import cells
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import whole
from tests.nodeagent.observed.gone import open_files
from tests.nodeagent.world import World

Key = tuple[str, str]


def holder_of(make_world: MakeWorld, unit: str) -> tuple[World, Key, tuple[int, int]]:
    """A pod, and the number of its device."""
    world = make_world(cut(("3g.40gb", 4)) if unit == "mig" else plain())
    if unit == "whole":
        world.apply(whole(0))
    world.settle(6)
    gpu = NvmlDriver().observe()[0]
    assert gpu.minor is not None
    if unit == "whole":
        return world, world.pod("nvidia.com/gpu"), (MAJORS["nvidia"], gpu.minor)
    return world, world.pod(THREE), (MAJORS["nvidia-caps"], capability_minor(gpu.minor, gpu.instances[0].id))


def waits_until_it_has_ended(world: World, late: Key, device: str, *, listed: bool = True) -> None:
    """A device that is not listed goes to no pod: that one is refused where it asked for it."""
    world.wait(15, times=8)
    assert late not in world.running
    assert world.waiting.get(late) == ((device,) if listed else None)
    open_files(world)
    world.wait(15, times=6)
    if not listed:
        late = world.pod(world.plugin.allocations[device].resource, device=device)
    assert world.running[late] == (device,)


@pytest.mark.parametrize(
    ("unit", "end", "look"),
    cells(["mig", "whole"], ["finished", "finished and deleted", "deleted by force"], ["finds it", "fails"]),
)
def test_a_process_of_a_pod_that_came_and_went_while_no_agent_ran_keeps_the_next_one_waiting(
    make_world: MakeWorld, unit: str, end: str, look: str
) -> None:
    world, holder, number = holder_of(make_world, unit)
    (device,) = world.running[holder]
    resource = world.plugin.allocations[device].resource
    world.clock.now += 5
    open_files(world, number, up_seconds=world.clock.now)
    if look == "fails":
        world.holders = lambda numbers: NoAnswer(reason="took too long")  # type: ignore[method-assign]
    world.clock.now += 5
    if end == "deleted by force":
        world.force_delete(holder, seen_by_driver=False)
        world.end_container(holder)
    else:
        world.finish(holder)
    if end == "finished and deleted":
        del world.pods[holder]
    late = world.pod(resource, device=device)
    world.restart()
    waits_until_it_has_ended(world, late, device)


def test_a_process_that_has_an_instance_open_keeps_the_next_pod_waiting_though_the_ledger_was_lost_in_between(
    make_world: MakeWorld,
) -> None:
    """When the instance was handed out first is not known then, so all that is open counts."""
    world, holder, number = holder_of(make_world, "mig")
    (device,) = world.running[holder]
    world.settle()
    open_files(world, number, up_seconds=world.clock.now)
    world.run(10)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    world.state.plugin.ledger.unlink()
    world.plugin.restart()
    waits_until_it_has_ended(world, world.pod(THREE, device=device), device, listed=False)

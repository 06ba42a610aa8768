"""Every record of a pod vanishes, in any order and at any distance: no pod gets its device while a process is left."""

import random
from collections.abc import Callable, Collection, Iterable
from itertools import permutations, product

import pytest

from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.processes import DeviceNumber, Process
from sandbox.driver.procfs import MAJORS, capability_minor
from tests.drawn import points
from tests.nodeagent.halves import THREE
from tests.nodeagent.observed.test_ends_proof import ENDED_BY_OTHERS
from tests.nodeagent.world import World

Key = tuple[str, str]
GAPS_SECONDS = (0, 5, 15, 60)
SEEN_SECONDS = 15
"""After which a process is known to be more than the end of a pod's sandbox."""


def api_object(world: World, holder: Key, uid: str) -> None:
    del world.pods[holder]


def list_entry(world: World, holder: Key, uid: str) -> None:
    world.forget(holder)


def checkpoint_line(world: World, holder: Key, uid: str) -> None:
    world.kubelet.entries = tuple(entry for entry in world.kubelet.entries if entry.pod_uid != uid)


def ledger(world: World, holder: Key, uid: str) -> None:
    world.state.plugin.ledger.unlink()
    world.plugin.restart()


RECORDS = (api_object, list_entry, checkpoint_line, ledger)
PROCESSES = ("in its cgroup", "outside, with the device open", "none")
PHASES = ("Running", "Failed")
AGENTS = ("saw it start", "starts after each record", "saw it last")
Cell = tuple[tuple[Callable[[World, Key, str], None], ...], tuple[int, ...], str, str, str]
CELLS: list[Cell] = [*product(permutations(RECORDS), product(GAPS_SECONDS, repeat=3), PROCESSES, PHASES, AGENTS)]
REACHED: list[Cell] = [
    ((ledger, checkpoint_line, api_object, list_entry), (5, 0, 0), "in its cgroup", "Failed", "saw it last"),
    ((ledger, checkpoint_line, api_object, list_entry), (5, 60, 5), PROCESSES[1], "Failed", "starts after each record"),
    ((ledger, list_entry, checkpoint_line, api_object), (0, 5, 15), PROCESSES[1], "Running", "saw it start"),
    ((checkpoint_line, api_object, ledger, list_entry), (0, 60, 60), PROCESSES[1], "Failed", "saw it last"),
    ((list_entry, checkpoint_line, api_object, ledger), (5, 0, 60), "none", "Running", "saw it last"),
]
"""Each was wrong once, but for the last one."""


def run_for(world: World, seconds: float) -> None:
    until = world.clock.now + seconds
    while world.clock.now < until:
        world.run(min(5.0 if seconds < 60 else 15.0, until - world.clock.now))


def runs_outside(world: World, device: str) -> None:
    """As a container that a pod has started by the runtime's own socket."""
    (gpu,) = NvmlDriver().observe()
    assert gpu.minor is not None
    (instance,) = (each.id for each in gpu.instances if each.uuid == device)
    number = (MAJORS["nvidia-caps"], capability_minor(gpu.minor, instance))
    opened = frozenset({number})
    process = Process(pid=4711, program="dockerd", up_seconds=world.clock.now + 1, opened=opened)
    world.hide_processes()

    def holders(numbers: Collection[DeviceNumber]) -> tuple[Process, ...]:
        return (process,) if number in numbers and any(device in ids for ids in world.running.values()) else ()

    world.holders = holders  # type: ignore[method-assign]


def named(cell: Iterable[object]) -> str:
    order, gaps, *others = cell
    assert isinstance(order, tuple)
    assert isinstance(gaps, tuple)
    return ", ".join([*(f"{a.__name__} {b}" for a, b in zip(order, (*gaps, ""), strict=True)), *map(str, others)])


@pytest.mark.parametrize("cell", [*REACHED, *points(random.Random(0).sample(CELLS, 100), each=12)], ids=named)
def test_its_device_is_no_ones_while_a_process_is_left_and_anyones_within_a_minute(world: World, cell: Cell) -> None:
    order, gaps_seconds, process, phase, agent = cell
    world.pod(THREE)
    world.settle()
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    uid = world.pods[holder]["metadata"]["uid"]
    world.detach(holder)
    if process == "none":
        world.end_container(holder)
    elif process != "in its cgroup":
        runs_outside(world, device)
    if agent != "saw it last":
        world.settle()
    world.pods[holder]["status"] = ENDED_BY_OTHERS.get(phase) or world.pods[holder]["status"]
    world.restart()
    world.run()

    def offered() -> bool:
        return device in world.kubelet.devices[THREE] and device not in world.kubelet.given()

    for vanish, seconds in zip(order, (*gaps_seconds, SEEN_SECONDS), strict=True):
        vanish(world, holder, uid)
        if agent == "starts after each record":
            world.restart()
        run_for(world, seconds)
    since = world.clock.now - SEEN_SECONDS
    if process != "none":
        for seconds in (5, 5, 15, 31, 61, 7200, 7200):
            assert not offered()
            world.run(seconds)
        assert not offered()
        world.end_container(holder)
        since = world.clock.now
    while not offered():
        assert world.clock.now - since < 65, world.gpu_status()
        world.run(5.0)

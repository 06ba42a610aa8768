"""How often the driver is called: it slows down what runs on the GPUs, so a settled node is left in peace."""

from collections import Counter
from collections.abc import Callable

import pytest

from sandbox.driver import processes
from sandbox.driver.abi.library import Library
from sandbox.driver.abi.registry import Export
from sandbox.driver.status import Status
from tests import incidents
from tests.drawn import thorough
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import mig, started
from tests.nodeagent.world import World

GPUS, SEVENTHS = 8, [("1g.10gb", start) for start in range(7)]
SEVENTH = "nvidia.com/mig-1g.10gb"
Calls = Counter[str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made: Calls = Counter()
    real = Library.call

    def counted(self: Library, export: Export, arguments: tuple[int | None, ...]) -> Status:
        made[export.function.__name__] += 1
        return real(self, export, arguments)

    monkeypatch.setattr(Library, "call", counted)
    return made


def settled(make_world: MakeWorld, gpus: int = GPUS) -> World:
    world = make_world(*[cut(*SEVENTHS)] * gpus)
    world.apply(*[mig(index, *SEVENTHS) for index in range(gpus)])
    world.settle()
    assert all(world.found(index) == ("Ready", "Confirmed") for index in range(gpus))
    return world


def passes(world: World, seconds: float, at_least: float = 0.0) -> None:
    until = world.clock.now + seconds
    while world.clock.now < until:
        due = world.pass_only()
        world.step(max(due, at_least))


@pytest.mark.parametrize("held", [False, *thorough(True)])
def test_a_settled_node_makes_few_calls_in_every_minute(make_world: MakeWorld, calls: Calls, held: bool) -> None:
    world = settled(make_world)
    if held:
        for _ in range(GPUS * len(SEVENTHS)):
            world.pod(SEVENTH)
        world.settle()
        assert len(world.running) == GPUS * len(SEVENTHS)
    for _ in range(3):
        calls.clear()
        passes(world, 60)

    assert calls.total() < 600, calls


def test_pods_without_a_gpu_that_come_and_go_cost_no_calls(make_world: MakeWorld, calls: Calls) -> None:
    """Each is in the watch, and not yet in the kubelet's list, when a pass looks: no use is known then."""
    world = settled(make_world)
    passes(world, 60)
    calls.clear()
    until, key = world.clock.now + 60, ("", "")
    while world.clock.now < until:
        world.pods.pop(key, None)
        key = world.bind("cpu")
        world.pods[key]["status"] = started()
        world.step(world.pass_only())
    assert calls.total() < 600, calls


def test_each_gpu_is_read_in_full_once_a_minute(make_world: MakeWorld, calls: Calls) -> None:
    """A fault that only some call shows is to be noticed."""
    world = settled(make_world, 1)
    passes(world, 30)
    calls.clear()

    passes(world, 300)

    assert 4 <= calls["nvmlDeviceGetMigMode"] <= 6


def lost(world: World) -> None:
    incidents.lose(world.machine, world.gpu().uuid)


def another_plan(world: World) -> None:
    world.apply(mig(0, "7g.80gb"))


@pytest.mark.parametrize("happens", [lost, another_plan])
def test_what_happens_on_a_settled_node_is_seen_by_the_next_pass(
    make_world: MakeWorld, happens: Callable[[World], None]
) -> None:
    world = settled(make_world, 1)
    passes(world, 45)

    happens(world)
    world.pass_only()

    assert world.found() != ("Ready", "Confirmed")


def test_a_process_that_came_after_the_reading_keeps_its_instance(make_world: MakeWorld, calls: Calls) -> None:
    """Whatever the kept reading says: what is destroyed was read in the same pass."""
    world = settled(make_world, 1)
    passes(world, 45)
    (device, *_) = sorted(i for ids in world.kubelet.devices.values() for i in ids)
    processes.attach(world.machine, device, 4242, 100)
    calls.clear()
    world.pass_only()
    assert calls["nvmlDeviceGetComputeRunningProcesses_v3"] == 0, "the reading is kept"

    world.apply(mig(0, "7g.80gb"))
    world.settle()

    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "process 4242 runs on it" in world.gpu_status()["message"]


def test_while_a_process_is_waited_for_its_end_is_seen_within_seconds(make_world: MakeWorld) -> None:
    world = settled(make_world, 1)
    (device, *_) = sorted(i for ids in world.kubelet.devices.values() for i in ids)
    processes.attach(world.machine, device, 4242, 100)
    world.apply(mig(0, "7g.80gb"))
    passes(world, 120)
    assert world.found()[0] == "WaitingForRelease"

    processes.detach(world.machine, 4242)
    passes(world, 25)

    assert world.found() == ("Ready", "Confirmed")


def test_what_waits_makes_fewer_calls_than_passes_would(make_world: MakeWorld, calls: Calls) -> None:
    world = settled(make_world, 1)
    (device, *_) = sorted(i for ids in world.kubelet.devices.values() for i in ids)
    processes.attach(world.machine, device, 4242, 100)
    world.apply(mig(0, "7g.80gb"))
    passes(world, 120)
    calls.clear()

    passes(world, 60)

    assert calls["nvmlDeviceGetMigMode"] <= 12

"""A lost or broken GPU: its devices stay in the kubelet's list as Unhealthy, and no further pod gets one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeagent.advertise.config_file import render
from nodeagent.advertise.faults import FaultBook, Faults
from nodeagent.desired.target import Unchanged
from nodeagent.handover.config import PluginConfig
from nodeagent.hardware.driver import DriverError, DriverGoneError, DriverHangsError, Health, ObservedGpu
from nodeagent.hardware.partitions import Partition, whole
from nodeagent.steps.changes import GpuChange
from tests import incidents
from tests.clock import Clock
from tests.nodeagent.conftest import MakeWorld, cut, empty
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

TWO = "nvidia.com/mig-2g.20gb"


def later(world: World, seconds: float = 6.0) -> None:
    world.pass_only()
    world.clock.now += seconds
    world.settle()


def counts(world: World, resource: str) -> tuple[str, str]:
    """Capacity and allocatable of the Node."""
    status = world.node["status"]
    return status["capacity"][resource], status["allocatable"][resource]


def lost(world: World) -> None:
    incidents.lose(world.machine, world.gpu().uuid)


def broken_rows(world: World) -> None:
    incidents.remap_rows(world.machine, world.gpu().uuid, failed=True)


@pytest.mark.parametrize("fault", [lost, broken_rows])
def test_no_further_pod_gets_a_device_of_a_broken_gpu(make_world: MakeWorld, fault: Callable[[World], None]) -> None:
    world = make_world(cut(("2g.20gb", 0)), *empty())
    world.settle(3)
    fault(world)
    world.apply(mig(0, ("2g.20gb", 0)), mig(1, ("4g.40gb", 0)))

    later(world)

    assert world.advertised() == {"nvidia.com/mig-4g.40gb": 1}
    assert counts(world, TWO) == ("1", "0")
    assert world.found(0) == ("Failed", "Unhealthy")
    assert "its partition is advertised as Unhealthy" in world.gpu_status()["message"]
    assert world.partitions() == ["mig-2g.20gb Unknown"]
    assert world.found(1) == ("Ready", "Confirmed")
    assert world.condition("GPUsHealthy")["status"] == "False"
    assert world.condition("Advertised")["status"] == "True"
    assert not world.tainted()


def test_a_pod_that_holds_a_device_of_a_broken_gpu_keeps_it(world: World) -> None:
    world.settle(3)
    key = world.pod(THREE)
    held = world.running[key]
    lost(world)

    later(world)

    assert counts(world, THREE) == ("2", "0")
    assert set(held) <= {device.id for device in world.plugin.config.advertised()}
    assert world.plugin.config.withdrawn == ()


def test_a_broken_gpu_does_not_wait_for_the_taint(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a policy refuses it, or the API server does not answer the agent, pods come to the node all the same."""
    world = make_world(cut(("2g.20gb", 0)), cut(("2g.20gb", 0), ("3g.40gb", 4)))
    world.apply(mig(0, ("2g.20gb", 0)), mig(1, ("2g.20gb", 0), ("3g.40gb", 4)))
    world.settle()
    with monkeypatch.context() as refused:
        refused.setattr(world, "set_taint", lambda _: "cannot change the taint")
        lost(world)
        world.apply(mig(0, ("2g.20gb", 0)), mig(1, ("3g.40gb", 4)))
        later(world)

        assert counts(world, TWO) == ("2", "1")
        assert world.plugin.config.withdrawn == (), "what is only planned otherwise waits for it"
        assert "cannot change the taint" in world.condition("Advertised")["message"]

    world.settle()
    assert counts(world, TWO) == ("1", "0")
    assert world.layout(1) == "3g.40gb at 4"


def test_a_fault_of_a_moment_changes_nothing(world: World) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    lost(world)
    world.pass_only()
    world.clock.now += 4.9
    assert world.pass_only() <= 1.0

    assert world.plugin.config.unhealthy == ()


def test_devices_are_healthy_again_once_the_gpu_is(world: World) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    broken_rows(world)
    later(world)
    assert world.advertised() == {}
    world.restart()
    world.run()
    assert counts(world, THREE) == ("2", "0"), "a new agent has seen the fault for no time, and the config knows it"

    incidents.remap_rows(world.machine, world.gpu().uuid)
    world.run()
    assert world.pass_only() <= 5.0
    assert counts(world, THREE) == ("2", "0"), "a good reading of a moment proves nothing"
    world.clock.now += 10
    world.settle()

    assert counts(world, THREE) == ("2", "2")
    assert world.found() == ("Ready", "Confirmed")


def test_the_event_of_a_gpu_that_is_well_again_stays_true(world: World) -> None:
    """It is shown for an hour, and for ten seconds of it the partitions stay as they were."""
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    broken_rows(world)
    later(world)
    incidents.remap_rows(world.machine, world.gpu().uuid)
    world.run()
    assert "advertised as Unhealthy" in world.gpu_status()["message"]
    assert world.events[-1][1:] == ("Confirmed", "GPU 0 matches the plan.")


GPU = ObservedGpu(index=0, uuid="GPU-1", health=Health.OK)
WELL = Faults()
RECOVERING = Faults(recovering=frozenset({GPU.uuid}))
BROKEN = Faults(broken=frozenset({GPU.uuid}))


@pytest.mark.parametrize(
    ("health", "faults", "before", "after"),
    [
        (Health.OK, WELL, False, False),
        (Health.OK, WELL, True, False),
        (Health.OK, RECOVERING, False, False),
        (Health.OK, RECOVERING, True, True),
        pytest.param(Health.UNKNOWN, WELL, False, False, id="a driver that does not answer now is no fault"),
        pytest.param(Health.UNKNOWN, WELL, True, True, id="nor a recovery"),
        (Health.UNKNOWN, BROKEN, False, True),
        (Health.UNHEALTHY, WELL, False, False),
        (Health.UNHEALTHY, WELL, True, True),
        (Health.UNHEALTHY, BROKEN, False, True),
    ],
)
def test_only_a_gpu_that_stays_well_is_healthy_again(health: Health, faults: Faults, before: bool, after: bool) -> None:
    gpu = replace(GPU, health=health)
    other = whole(replace(GPU, index=1, uuid="GPU-2"))
    known = PluginConfig.of([whole(gpu).device], (), [gpu.uuid] if before else [])
    changes = [GpuChange(gpu=gpu, target=Unchanged(), advertise=(whole(gpu),)), _change(other)]

    found = render(changes, known, faults)

    assert found.unhealthy == ((gpu.uuid,) if after else ())


def _change(partition: Partition) -> GpuChange:
    return GpuChange(gpu=replace(GPU, index=1, uuid=partition.gpu), target=Unchanged(), advertise=(partition,))


def test_devices_of_a_gpu_without_a_known_uuid_are_unhealthy_with_it() -> None:
    nameless = replace(GPU, uuid="", health=Health.UNHEALTHY, problem="GPU is lost")
    known = PluginConfig.of([whole(GPU).device])

    assert render([GpuChange(gpu=nameless, target=Unchanged())], known, Faults()).unhealthy == ()
    assert render([GpuChange(gpu=nameless, target=Unchanged())], known, Faults(broken=frozenset({""}))).unhealthy == (
        GPU.uuid,
    )


def test_of_a_gpu_without_a_known_uuid_all_stays_as_it_was_and_nothing_of_the_others() -> None:
    nameless, there = replace(GPU, uuid=""), whole(replace(GPU, index=1, uuid="GPU-2"))
    stays, leaves = whole(GPU).device, replace(there.device, id="GPU-2::7")
    known = PluginConfig.of([stays, replace(stays, id="GPU-1::3"), leaves], ["GPU-1::3"])

    found = render([GpuChange(gpu=nameless, target=Unchanged()), _change(there)], known, Faults())

    assert [device.id for device in found.advertised()] == ["GPU-1", "GPU-2"]
    assert ([device.id for device in found.devices], found.withdrawn) == (["GPU-1", "GPU-1::3", "GPU-2"], ("GPU-1::3",))


LOST = replace(GPU, health=Health.UNHEALTHY, problem="GPU is lost")
UNREAD = replace(GPU, health=Health.UNKNOWN, problem="Unknown Error")
HANGS = replace(UNREAD, hangs=True)
AWAY = DriverGoneError("counting the GPUs", "Driver Not Loaded")
SILENT = DriverHangsError("counting the GPUs", "no answer")
PATIENCE = [(LOST, None, 5), (UNREAD, None, 60), (HANGS, None, 300), (UNREAD, AWAY, 60), (UNREAD, SILENT, 300)]


@pytest.mark.parametrize(("bad", "driver", "seconds"), PATIENCE)
@pytest.mark.parametrize("age", [0, 7, 1000], ids=["a new agent", "an agent", "an old agent"])
def test_a_gpu_is_broken_once_it_had_no_good_reading_for_so_long(
    bad: ObservedGpu, driver: DriverError | None, seconds: int, age: int
) -> None:
    clock = Clock()
    book = FaultBook(clock)
    if age:
        clock.now += age
        assert book.judge([GPU]) == Faults()
    clock.now += 0.5
    found = book.judge([bad], driver)
    assert (found.broken, found.recovering) == (frozenset(), frozenset())
    assert found.due_seconds is not None
    assert found.due_seconds <= 5.0

    clock.now += seconds - 1 if seconds > 5 else 4
    assert GPU.uuid not in book.judge([bad], driver).broken
    clock.now += 1
    assert GPU.uuid in book.judge([bad], driver).broken
    clock.now += 1000
    assert GPU.uuid in book.judge([bad], driver).broken


@pytest.mark.parametrize(("bad", "driver", "seconds"), PATIENCE)
def test_one_bad_reading_between_good_ones_is_no_fault(
    bad: ObservedGpu, driver: DriverError | None, seconds: int
) -> None:
    """However long the last good one is ago: a settled node is read once a minute."""
    clock = Clock()
    book = FaultBook(clock)
    for _ in range(10):
        assert not book.judge([GPU]).broken
        clock.now += 2 * seconds
        assert not book.judge([bad], driver).broken
        clock.now += 1


@pytest.mark.parametrize(("bad", "driver", "seconds"), PATIENCE)
def test_a_broken_gpu_is_well_after_ten_good_seconds_without_a_gap(
    bad: ObservedGpu, driver: DriverError | None, seconds: int
) -> None:
    clock = Clock()
    book = FaultBook(clock)
    book.judge([bad], driver)
    clock.now += seconds
    assert book.judge([bad], driver).broken
    for _ in range(2):
        book.judge([bad], driver)
        assert book.judge([GPU]).recovering >= {GPU.uuid}
        clock.now += 9.5
        assert book.judge([GPU]).recovering >= {GPU.uuid}
    clock.now += 0.5
    assert book.judge([GPU]) == Faults()


def test_what_an_earlier_agent_listed_stays_until_good_readings_have_lasted() -> None:
    clock = Clock()
    book = FaultBook(clock, [GPU.uuid])
    assert book.judge([GPU]).recovering == {GPU.uuid}
    clock.now += 10
    assert book.judge([GPU]) == Faults()


def test_gpus_without_a_known_uuid_are_judged_together() -> None:
    clock = Clock()
    book = FaultBook(clock)
    nameless = replace(UNREAD, uuid="")
    clock.now += 1000
    assert book.judge([GPU]) == Faults()
    assert not book.judge([GPU, nameless]).broken
    clock.now += 60
    assert book.judge([GPU, nameless]).broken == {""}

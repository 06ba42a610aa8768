"""A lost or broken GPU: its devices stay in the kubelet's list as Unhealthy, and no further pod gets one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodeagent.advertise.advertiser import Faults
from nodeagent.advertise.config_file import render
from nodeagent.desired.target import Unchanged
from nodeagent.handover.config import PluginConfig
from nodeagent.hardware.driver import Health, ObservedGpu
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


def test_with_a_plugin_of_an_earlier_version_a_broken_gpu_stops_no_other(make_world: MakeWorld) -> None:
    world = make_world(cut(("2g.20gb", 0)), *empty())
    world.plugin.knows_unhealthy = False
    world.settle(3)
    lost(world)
    world.apply(mig(0, ("2g.20gb", 0)), mig(1, ("4g.40gb", 0)))

    later(world)
    world.apply(mig(0, ("2g.20gb", 0)), mig(1, ("3g.40gb", 0)))
    world.settle()

    assert world.found(1) == ("Ready", "Confirmed")
    assert world.found(0) == ("Failed", "Unhealthy")
    assert "Unhealthy" not in world.gpu_status()["message"], "its partition is still listed as healthy"

    world.plugin.knows_unhealthy = True
    world.settle()
    assert counts(world, TWO) == ("1", "0")


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
    world.settle()

    assert counts(world, THREE) == ("2", "2")
    assert world.found() == ("Ready", "Confirmed")


GPU = ObservedGpu(index=0, uuid="GPU-1", health=Health.OK)


@pytest.mark.parametrize(
    ("health", "broken", "before", "after"),
    [
        (Health.OK, False, False, False),
        (Health.OK, False, True, False),
        pytest.param(Health.UNKNOWN, False, False, False, id="a driver that does not answer is no fault"),
        pytest.param(Health.UNKNOWN, False, True, True, id="nor a recovery"),
        (Health.UNHEALTHY, False, False, False),
        (Health.UNHEALTHY, False, True, True),
        (Health.UNHEALTHY, True, False, True),
    ],
)
def test_only_a_gpu_that_reports_ok_is_healthy_again(health: Health, broken: bool, before: bool, after: bool) -> None:
    gpu = replace(GPU, health=health)
    other = whole(replace(GPU, index=1, uuid="GPU-2"))
    known = PluginConfig.of([whole(gpu).device], (), [gpu.uuid] if before else [])
    changes = [GpuChange(gpu=gpu, target=Unchanged(), advertise=(whole(gpu),)), _change(other)]

    found = render(changes, known, broken={gpu.uuid} if broken else set())

    assert found.unhealthy == ((gpu.uuid,) if after else ())


def _change(partition: Partition) -> GpuChange:
    return GpuChange(gpu=replace(GPU, index=1, uuid=partition.gpu), target=Unchanged(), advertise=(partition,))


def test_devices_of_a_gpu_without_a_known_uuid_are_unhealthy_with_it() -> None:
    nameless = replace(GPU, uuid="", health=Health.UNHEALTHY, problem="GPU is lost")
    known = PluginConfig.of([whole(GPU).device])

    assert render([GpuChange(gpu=nameless, target=Unchanged())], known).unhealthy == ()
    assert render([GpuChange(gpu=nameless, target=Unchanged())], known, broken={""}).unhealthy == (GPU.uuid,)


def test_a_fault_counts_after_some_seconds_without_a_gap() -> None:
    clock = Clock()
    faults = Faults(clock, patience_seconds=5)
    bad = replace(GPU, health=Health.UNHEALTHY)

    assert (faults.broken([bad]), faults.waits) == (frozenset(), True)
    clock.now += 4
    assert (faults.broken([GPU]), faults.waits) == (frozenset(), False)
    clock.now += 4
    assert faults.broken([bad]) == frozenset()
    clock.now += 5
    assert (faults.broken([bad]), faults.waits) == (frozenset({GPU.uuid}), False)

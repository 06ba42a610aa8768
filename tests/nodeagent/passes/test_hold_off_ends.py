"""DriverReleased becomes True in the end, and does not say what was not read: no driver, a monitor, hidden files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.observed.processes import Process
from sandbox.driver.procfs import MAJORS, proc_of
from tests import incidents
from tests.builders.models import H100
from tests.nodeagent.conftest import MakeWorld
from tests.nodeagent.items import mig
from tests.nodeagent.passes.test_held_open import open_devices
from tests.nodeagent.passes.test_hold_off import SLICE, hold_off, released
from tests.nodeagent.world import World


@pytest.fixture
def halves(make_world: MakeWorld) -> World:
    world = make_world((H100, {"mig_enabled": True}))
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    return world


@pytest.mark.parametrize("loaded", [True, False], ids=["driver loaded", "no one has loaded the driver"])
def test_a_checkpoint_line_of_the_last_boot_ends_though_no_driver_is_loaded(halves: World, loaded: bool) -> None:
    """Held off, pod deleted by force, the machine is restarted; the kubelet's file keeps the line of that pod."""
    pod = halves.pod(SLICE)
    halves.settle()
    hold_off(halves)
    halves.settle()
    entries = halves.kubelet.entries
    assert entries
    halves.force_delete(pod, seen_by_driver=False)
    halves.settle()
    halves.reboot()
    halves.kubelet.entries = entries
    incidents.set_driver_loaded(halves.machine, loaded)
    halves.restart()
    halves.settle()
    for _ in range(4):
        halves.wait(3600)
    assert released(halves) == ("True", "DriverClosed"), halves.condition("DriverReleased")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_ends_though_a_person_has_unloaded_the_driver(halves: World, restarted: bool) -> None:
    pod = halves.pod(SLICE)
    halves.settle()
    hold_off(halves)
    halves.settle()
    halves.force_delete(pod, seen_by_driver=False)
    halves.end_container(pod)
    halves.run()
    incidents.set_driver_loaded(halves.machine, False)
    if restarted:
        halves.restart()
    for _ in range(4):
        halves.wait(3600)
    assert released(halves) == ("True", "DriverClosed"), halves.condition("DriverReleased")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_monitor_of_the_host_is_no_holder_while_the_driver_is_closed(
    monkeypatch: pytest.MonkeyPatch, halves: World, restarted: bool
) -> None:
    """nv-hostengine was started again after the Allocate, and has mig/monitor open, as each reader of instances."""
    pod = halves.pod(SLICE)
    halves.settle()
    hold_off(halves)
    halves.settle()
    if restarted:
        halves.restart()
    halves.force_delete(pod, seen_by_driver=False)
    halves.end_container(pod)
    process = Process(pid=4711, program="nv-hostengine", up_seconds=halves.clock.now + 1000)
    numbers = {(MAJORS["nvidia-caps"], 2)}
    monkeypatch.setattr(halves, "holders", lambda asked: (process,) if numbers & set(asked) else ())
    for _ in range(4):
        halves.wait(3600)
    assert released(halves) == ("True", "DriverClosed"), halves.condition("DriverReleased")


def test_unreadable_devices_of_proc_are_not_said_to_have_no_opener(halves: World) -> None:
    hold_off(halves)
    halves.settle()
    (proc_of(halves.machine) / "devices").unlink()
    halves.restart()
    halves.settle()
    message = halves.condition("DriverReleased")["message"]
    assert "No other program" not in message, message


@pytest.fixture
def made() -> Iterator[list[Path]]:
    """Device nodes in /dev, where the agent looks."""
    made: list[Path] = []
    yield made
    for node in made:
        node.unlink(missing_ok=True)


@pytest.mark.parametrize("device", ["nvidia", "nvidia-uvm", "nvidia-nvswitch"])
def test_program_that_keeps_any_part_of_the_driver_loaded_is_named(
    halves: World, made: list[Path], device: str
) -> None:
    """The fabric manager has no GPU open, and the driver cannot be replaced before it has ended."""
    majors = {**MAJORS, "nvidia-nvswitch": 507}
    proc = proc_of(halves.machine)
    hold_off(halves)
    halves.settle()
    (proc / "devices").write_text("Character devices:\n" + "".join(f"{n:3d} {name}\n" for name, n in majors.items()))
    open_devices(made, proc, 4711, "nv-fabricmanage", "0::/system.slice/x.service", (majors[device], 0))
    halves.pass_only()
    assert released(halves) == ("True", "DriverClosed")
    message = halves.condition("DriverReleased")["message"]
    assert "Programs that have it open: nv-fabricmanage (in no pod)" in message

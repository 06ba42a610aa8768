"""DriverReleased becomes True in the end, and does not say what was not read: no driver, a monitor, hidden files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.handover.config import PluginConfig, read_config
from nodeagent.handover.mps_state import MpsDaemon, MpsState, hold_mps_lock, write_mps
from nodeagent.mps.supervisor import shares
from nodeagent.observed.processes import Process
from sandbox.driver import clients
from sandbox.driver.procfs import MAJORS, proc_of
from tests import incidents
from tests.builders.models import H100, T4
from tests.nodeagent.conftest import MakeWorld
from tests.nodeagent.items import Raw, mig, mps
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
    halves.wait(3600, times=4)
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
    halves.wait(3600, times=4)
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
    halves.wait(3600, times=4)
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


@pytest.fixture
def shared(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A GPU with two MPS slices, and a supervisor that has a daemon for each GPU with slices in the config."""
    world = make_world((T4, {}))
    lock, step = hold_mps_lock(world.state.plugin), world.step
    assert lock is not None

    def stepped(seconds: float = 0.5) -> None:
        step(seconds)
        config = read_config(world.state.plugin)
        assert isinstance(config, PluginConfig)
        write_mps(world.state.plugin, MpsState(daemons=tuple(MpsDaemon(gpu=gpu, ready=True) for gpu in shares(config))))

    monkeypatch.setattr(world, "step", stepped)
    world.apply(mps(0, 4, 4))
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu-4gb": 2}
    with lock:
        yield world


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("restarted", [False, True])
def test_daemons_end_though_the_agent_never_had_the_driver_open(shared: World, held: bool, restarted: bool) -> None:
    """It has read no GPU, and knows of their slices by the config alone."""
    pod = shared.pod("nvidia.com/gpu-4gb") if held else None
    hold_off(shared)
    if restarted:
        shared.restart()
    shared.settle()
    if pod is not None:
        assert released(shared) == ("False", "WaitingForRelease")
        assert len(shared.plugin.config.devices) == 1, "its client has its daemon"
        shared.finish(pod)
    shared.settle()
    assert released(shared) == ("True", "DriverClosed"), shared.condition("DriverReleased")
    hold_off(shared, None)
    shared.settle()
    assert shared.advertised() == {"nvidia.com/gpu-4gb": 2}


@pytest.mark.parametrize("restarted", [False, True])
def test_slices_of_a_gpu_that_the_plan_does_not_list_are_no_release(make_world: MakeWorld, restarted: bool) -> None:
    """They stay, since nothing else knows of them; the supervisor, away now, starts their daemon when it is back."""
    world = make_world((T4, {}), (T4, {}))
    world.apply(mps(0, 4, 4), mps(1, 8))
    world.settle()
    world.apply(by_card(world, 1))
    world.settle()
    hold_off(world)
    if restarted:
        world.restart()
    world.settle()
    assert [device.resource for device in world.plugin.config.devices] == ["nvidia.com/gpu-4gb"] * 2
    assert released(world) == ("False", "Withdrawing")
    assert "their GPU is planned" in world.condition("DriverReleased")["message"]
    hold_off(world, None)
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu-4gb": 2, "nvidia.com/gpu-8gb": 1}


def by_card(world: World, index: int) -> Raw:
    """The item of the second GPU, by its card, as the planner writes it."""
    return {**mps(index, 8), "uuid": world.gpu(index).uuid}


def test_a_release_that_a_killed_agent_had_sent_first_of_all_is_taken_back_at_once(halves: World) -> None:
    """No earlier status says that the driver was being closed, and the next agent has it open as this one arrives."""
    assert halves.plan is not None
    status = halves.plan["status"]
    said = {
        "type": "DriverReleased",
        "status": "True",
        "reason": "DriverClosed",
        "message": "",
        "lastTransitionTime": "t",
    }
    halves.plan = {**halves.plan, "status": {**status, "conditions": [*status["conditions"], said]}}
    halves.pass_only()
    assert not clients.any_open(halves.machine), "before anything else"
    assert halves.condition("DriverReleased")["status"] == "False"
    halves.settle()
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.advertised() == {SLICE: 2}

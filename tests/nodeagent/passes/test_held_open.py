"""A program holds a GPU instance open that no list of the driver shows, as DCGM does.

Its compute instance comes back, pods may get it meanwhile, and the message names who holds it and what to do.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sandbox.driver import processes
from sandbox.driver.procfs import MAJORS, proc_of
from tests.drawn import examples, points, thorough
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import mig, operator_pod
from tests.nodeagent.world import World

THREE, ALL = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-7g.80gb"
DCGM = 99


@pytest.fixture
def device_nodes() -> Iterator[list[Path]]:
    """Made in /dev, where the agent looks."""
    made: list[Path] = []
    yield made
    for node in made:
        node.unlink(missing_ok=True)


def hold(world: World, *, instance: int = 0, alone: bool = True) -> None:
    uuid = world.gpu().instances[instance].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, DCGM, 1, hidden=True, gpu_instance_alone=alone)


def let_go(world: World) -> None:
    processes.detach(world.machine, DCGM)


@pytest.fixture
def held(make_world: MakeWorld) -> World:
    """Two halves that are to become small ones; one of them is held open."""
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle(4)
    hold(world)
    world.effect.done.clear()
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle(8)
    return world


@pytest.mark.parametrize("alone", [True, False], ids=["the GPU instance alone", "the compute instance, too"])
def test_instance_that_is_held_open_comes_back_and_is_advertised(make_world: MakeWorld, alone: bool) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle(4)
    ids = set(world.kubelet.devices[THREE])
    hold(world, alone=alone)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle(8)

    assert not [instance for instance in world.gpu().instances if instance.half_made]
    assert set(world.kubelet.devices[THREE]) == ids, "the other one is not torn down for nothing"
    assert world.found() == ("WaitingForRelease", "HeldOpen")
    assert world.condition("Stalled")["status"] == "False"
    assert not world.tainted()


def test_pod_that_gets_it_meanwhile_keeps_it(held: World) -> None:
    pod = held.pod(THREE)
    let_go(held)
    held.run_for(900.0)
    assert held.running[pod]
    assert held.advertised()[THREE] == 1
    assert held.found() == ("WaitingForRelease", "WaitingForRelease")
    held.finish(pod)
    held.forget(pod)
    held.run_for(120.0)
    assert held.found() == ("Ready", "Confirmed")


def test_change_goes_on_once_nothing_holds_it(held: World) -> None:
    let_go(held)
    held.run_for(30.0)
    assert held.found() == ("Ready", "Confirmed")
    assert held.advertised() == {ALL: 1}


def test_tries_become_rare(held: World) -> None:
    held.run_for(3600.0)
    tries = [done for done in held.effect.done if done.startswith("journal destroy")]
    assert 5 <= len(tries) <= 20, len(tries)
    assert set(held.advertised()) == {THREE}


def test_after_five_minutes_the_message_says_what_to_do(held: World) -> None:
    stalled = []
    for _ in range(450):
        held.run(2.0)
        stalled.append(held.condition("Stalled")["status"])
    assert stalled[140] == "False"
    assert set(stalled[155:]) == {"True"}, "also while it tries"
    assert held.found() == ("Failed", "HeldOpen")
    message = held.condition("Stalled")["message"]
    assert "nvidia.com/gpu.deploy.dcgm=false nvidia.com/gpu.deploy.dcgm-exporter=false" in message
    assert "no process is seen" in message
    let_go(held)
    held.run_for(400.0)
    assert held.found() == ("Ready", "Confirmed")
    assert held.condition("Stalled")["status"] == "False"


@pytest.mark.parametrize("each_seconds", [20, *thorough(280)])
def test_restarted_agent_goes_on_with_the_pauses_of_the_one_before(held: World, each_seconds: int) -> None:
    """Or DCGM, which is off for five minutes, would be off again after each restart."""
    found = []
    for second in range(0, max(examples(900), 400), 2):
        if second and second % each_seconds == 0:
            held.restart()
        held.run(2.0)
        found.append(held.found())
    assert {state for state, _ in found[:140]} <= {"WaitingForRelease", "Changing"}
    assert set(found[155:]) == {("Failed", "HeldOpen")}
    tries = [done for done in held.effect.done if done.startswith("journal destroy")]
    assert len(tries) <= 9, len(tries)
    let_go(held)
    held.restart()
    held.run_for(400.0)
    assert held.found() == ("Ready", "Confirmed")
    assert not list(held.state.journal.iterdir())


@pytest.mark.thorough
def test_pause_of_a_boot_before_is_no_longer_than_any_other(held: World) -> None:
    held.run_for(2000.0)
    held.clock.now = 10.0  # counts from the start of the machine
    held.restart()
    let_go(held)
    held.run_for(400.0)
    assert held.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("pause_seconds", [0.0, 1e9])
def test_pause_that_is_no_pause_of_this_version_is_bounded(held: World, pause_seconds: float) -> None:
    (file,) = held.state.journal.iterdir()
    content = json.loads(file.read_text())
    content["heldOpen"] |= {"pauseSeconds": pause_seconds, "overAt": held.clock.now + pause_seconds}
    file.write_text(json.dumps(content))
    held.effect.done.clear()
    held.restart()
    held.run_for(900.0)
    tries = [done for done in held.effect.done if done.startswith("journal destroy")]
    assert 2 <= len(tries) <= 9, len(tries)
    let_go(held)
    held.run_for(400.0)
    assert held.found() == ("Ready", "Confirmed")


def test_new_plan_without_the_change_is_carried_out_at_once(held: World) -> None:
    held.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    held.settle(4)
    assert held.found() == ("Ready", "Confirmed")
    assert held.advertised() == {THREE: 2}


def test_plan_that_only_removes_it_is_not_ready(held: World) -> None:
    held.apply(mig(0, ("3g.40gb", 4)))
    held.settle(6)
    assert held.found() == ("WaitingForRelease", "HeldOpen")


def test_restart_after_any_effect_ends_the_same(make_world: MakeWorld) -> None:
    def story(kill_after: int) -> World:
        world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
        world.settle(4)
        hold(world)
        world.effect.done.clear()
        world.effect.kill_after = kill_after
        world.apply(mig(0, ("7g.80gb", 0)))
        world.settle(14)
        return world

    unharmed = story(-1)
    steps = len(unharmed.effect.done)
    assert "create CI" in " ".join(unharmed.effect.done)
    for kill_after in points(range(1, steps + 1)):
        world = story(kill_after)
        what = unharmed.effect.done[:kill_after]
        world.run_for(10.0)
        assert not [i for i in world.gpu().instances if i.half_made], what
        let_go(world)
        world.run_for(400.0)
        assert world.found() == ("Ready", "Confirmed"), what
        assert world.advertised() == {ALL: 1}, what


def test_holders_are_named_from_their_open_files(held: World, device_nodes: list[Path]) -> None:
    exporter = operator_pod("nvidia-dcgm-exporter-x", {}, "/var")
    uid = exporter["metadata"]["uid"] = "0c8f1a52-6f5d-4b0e-9c57-2f1d9a3b7e64"
    held.pods["gpu-operator", "nvidia-dcgm-exporter-x"] = exporter
    held.kubelet.known.add(("gpu-operator", "nvidia-dcgm-exporter-x"))
    proc = proc_of(held.machine)
    opens = partial(open_devices, device_nodes, proc)
    opens(71, "dcgm-exporter", f"0::/kubepods.slice/pod{uid}.slice", (MAJORS["nvidia"], 0))
    opens(72, "nv-hostengine", "0::/system.slice/dcgm.service", (MAJORS["nvidia"], 0))
    opens(73, "other-gpu", "0::/x", (MAJORS["nvidia"], 1), (MAJORS["nvidiactl"], 255))
    opens(74, "named-like-it", "0::/x", (1, 3))
    held.run_for(20.0)
    message = held.gpu_status()["message"]
    assert "open in nv-hostengine (in no pod), dcgm-exporter (pod gpu-operator/nvidia-dcgm-exporter-x))" in message
    assert "other-gpu" not in message
    assert "named-like-it" not in message


def open_devices(made: list[Path], proc: Path, pid: int, program: str, cgroup: str, *numbers: tuple[int, int]) -> None:
    """A process of the node that has these devices open."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} ({program}) S {' '.join(['1'] * 48)}")
    (folder / "cgroup").write_text(cgroup)
    for position, (major, minor) in enumerate(numbers):
        node = Path(f"/dev/gpuplan-test-{os.getpid()}-{pid}-{position}")
        try:
            os.mknod(node, 0o020600, os.makedev(major, minor))
        except PermissionError:
            pytest.skip("device nodes need CAP_MKNOD")
        made.append(node)
        (folder / "fd" / str(position)).symlink_to(node)

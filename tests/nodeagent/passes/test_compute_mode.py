"""A GPU that is shared by MPS is in compute mode EXCLUSIVE_PROCESS, and gets back the mode that it had."""

import pytest

from nodeagent.hardware.driver import NotPermittedError
from sandbox.driver.machine import observe
from sandbox.driver.store import Store
from tests import incidents
from tests.drawn import points
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.items import mps, whole
from tests.nodeagent.watched import Killed
from tests.nodeagent.world import World

DEFAULT, PROHIBITED, EXCLUSIVE = 0, 2, 3


def modes(world: World) -> list[int]:
    return [gpu["compute_mode"] for gpu in observe(world.machine)["gpus"]]


def set_by_hand(world: World, mode: int) -> None:
    with Store(world.machine).writing() as machine:
        machine["gpus"][0]["compute_mode"] = mode


@pytest.mark.parametrize("before", [DEFAULT, PROHIBITED])
def test_a_shared_gpu_is_exclusive_until_its_last_slice_went(make_world: MakeWorld, before: int) -> None:
    world = make_world(plain(), cut(("1g.10gb", 0)))
    set_by_hand(world, before)
    world.settle(3)
    assert modes(world) == [before, DEFAULT]
    world.apply(mps(0, 10, 10))
    world.settle()
    assert modes(world) == [EXCLUSIVE, DEFAULT]
    world.restart()
    holder = world.pod("nvidia.com/gpu-10gb")
    world.apply(whole(0))
    world.settle()
    assert modes(world) == [EXCLUSIVE, DEFAULT], "a pod holds a slice"
    world.finish(holder)
    world.settle()
    assert world.advertised()["nvidia.com/gpu"] == 1
    assert modes(world) == [before, DEFAULT]


def test_a_mode_that_was_exclusive_before_stays_so(make_world: MakeWorld) -> None:
    world = make_world(plain())
    set_by_hand(world, EXCLUSIVE)
    world.apply(mps(0, 10))
    world.settle()
    world.apply(whole(0))
    world.settle()
    assert modes(world) == [EXCLUSIVE]


def test_what_a_person_or_a_reboot_changes_is_set_again(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10))
    world.settle()
    set_by_hand(world, DEFAULT)
    world.settle()
    assert modes(world) == [EXCLUSIVE]
    incidents.reboot(world.machine)
    world.settle()
    assert modes(world) == [EXCLUSIVE]
    world.apply(whole(0))
    world.settle()
    assert modes(world) == [DEFAULT]


def test_a_driver_that_refuses_is_reported_and_stops_nothing(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(plain())

    def refuse(gpu_uuid: str, mode: int) -> None:
        raise NotPermittedError("setting the compute mode", "no permission")

    monkeypatch.setattr(world.driver, "set_compute_mode", refuse)
    world.apply(mps(0, 10))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert "its compute mode could not be changed" in world.gpu_status()["message"]


def test_where_it_is_not_desired_nothing_is_set_and_what_was_set_is_restored(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(mps(0, 10))
    world.settle()
    world.exclusive = False
    world.restart()
    world.settle()
    assert modes(world) == [DEFAULT]


@pytest.mark.parametrize("kill_after", points(range(1, 12)))
def test_an_agent_that_is_killed_anywhere_restores_the_mode(make_world: MakeWorld, kill_after: int) -> None:
    world = make_world(plain())
    set_by_hand(world, PROHIBITED)
    world.settle(3)
    world.effect.kill_after = len(world.effect.done) + kill_after
    for item, mode in ((mps(0, 10), EXCLUSIVE), (whole(0), PROHIBITED)):
        try:
            world.apply(item)
            world.settle()
        except Killed:
            world.effect.kill_after = -1
            world.restart()
            world.settle()
        assert modes(world) == [mode]

"""Pods bound while a pass runs, or while another GPU is ill, are not refused; a plan taken back ends its wait."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.hardware.driver import Health
from nodeagent.hardware.reading import HardwareReader
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.items import mig, mps, whole
from tests.nodeagent.passes.test_binds import HALF, has_room
from tests.nodeagent.world import World

LAST_HALF = cut(("3g.40gb", 4))


def while_reading(monkeypatch: pytest.MonkeyPatch, also: Callable[[Any], Any]) -> None:
    """`also` gets each reading of the driver, and returns what the agent sees."""
    read = HardwareReader.read
    monkeypatch.setattr(HardwareReader, "read", lambda self, **how: also(read(self, **how)))


def test_a_pod_that_is_bound_after_a_pass_has_read_the_pods_is_admitted(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler decided before it saw the taint, and the driver takes longer than the wait for such pods."""
    world = make_world(LAST_HALF)
    world.settle(4)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.pass_only()
    assert world.tainted()
    bound: list[tuple[str, str]] = []

    def bind(found: Any) -> Any:
        if not bound:
            bound.append(world.bind(HALF))
        world.clock.now += 0.5
        return found

    with monkeypatch.context() as patched:
        while_reading(patched, bind)
        world.run()
    world.admit(bound[0], HALF)
    assert world.pods[bound[0]]["status"]["phase"] == "Running"
    world.settle()
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert not world.tainted()


def test_a_new_device_of_an_ill_gpu_sends_no_shorter_list_ahead_of_the_taint(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(LAST_HALF, plain())
    half = mig(0, ("3g.40gb", 4))
    world.apply(half, mps(1, 10, 10))
    world.settle(8)
    ill = world.gpu(1).uuid

    def unwell(found: Any) -> Any:
        gpus = (replace(gpu, health=Health.UNHEALTHY) if gpu.uuid == ill else gpu for gpu in found.gpus)
        return replace(found, gpus=tuple(gpus))

    while_reading(monkeypatch, unwell)
    for _ in range(20):
        world.run()
    world.apply(half, whole(1))
    world.run()
    world.run()
    assert world.advertised() == {HALF: 1}, "the slices were Unhealthy, and are withdrawn"
    world.apply(mig(0, ("7g.80gb", 0)), whole(1))  # the whole GPU is listed, as Unhealthy, in the same pass
    world.pass_only()
    key = world.bind(HALF) if has_room(world, world.node, HALF) else None
    for _ in range(4):
        world.run()
    if key is not None:
        world.admit(key, HALF)
        assert world.pods[key]["status"]["phase"] == "Running"
    world.settle()
    assert world.advertised().get(HALF, 0) == (key is not None)


def test_a_plan_that_is_taken_back_while_it_waits_leaves_no_passes_behind(make_world: MakeWorld) -> None:
    world: World = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    before = mig(0, ("3g.40gb", 0), ("3g.40gb", 4))
    world.apply(before)
    world.settle()
    world.apply(mig(0, ("7g.80gb", 0)))
    assert world.run(0.1) < 1.0
    assert world.tainted()
    world.apply(before)
    for _ in range(20):
        due_seconds = world.run(30.0)
    assert not world.tainted()
    assert due_seconds >= 5.0

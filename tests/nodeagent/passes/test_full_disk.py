"""A state directory that cannot be written: nothing is destroyed, the status reports why, and it recovers by itself."""

from pathlib import Path

import pytest

from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.items import mig, mps
from tests.nodeagent.world import World


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    found = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)), *empty(), plain())
    found.apply()
    found.settle(4)
    return found


def block(path: Path) -> Path:
    """Nothing can be written where the temporary file is a directory, also by root; remove it to unblock."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.mkdir(parents=True)
    return temporary


def test_without_a_memory_nothing_is_destroyed(world: World) -> None:
    blocked = block(world.state.holdings)
    world.pod("nvidia.com/mig-3g.40gb")
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "memory of holders cannot be written" in world.gpu_status()["message"]

    blocked.rmdir()
    world.settle()
    assert world.layout().count("3g.40gb") == 1


def test_without_a_journal_the_driver_is_not_called(world: World) -> None:
    blocked = block(world.state.journal / f"{world.gpu(1).uuid}.json")
    world.apply(mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.layout(1) == "empty"
    assert world.found(1) == ("Failed", "DriverError")
    assert "writing down the create of 7g.80gb at 0" in world.gpu_status(1)["message"]

    blocked.rmdir()
    world.clock.now += 60
    world.settle()
    assert world.found(1) == ("Ready", "Confirmed")


def test_without_a_config_for_the_plugin_the_status_reports_it(world: World) -> None:
    blocked = block(world.state.plugin.config)
    world.apply(mps(2, 10))

    world.settle()

    assert world.gpu_status(2)["state"] != "Ready"
    assert "config cannot be written" in world.condition("Advertised")["message"]

    blocked.rmdir()
    world.settle()
    assert world.found(2) == ("Ready", "Confirmed")

"""Fixtures of the node agent's tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partitioning.models import GpuModel
from sandbox.driver.machine import GpuOptions
from tests.builders.models import H100
from tests.nodeagent.lanes import ended
from tests.nodeagent.world import World
from tests.quirks import Quirks

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(*gpus: tuple[GpuModel, GpuOptions], quirks: Quirks | None = None) -> World:
        path = tmp_path / f"w{len(made)}"
        path.mkdir()
        world = World(path, gpus, quirks)
        made.append(world)
        return world

    yield make
    for world in reversed(made):
        for driver in world.threaded:
            ended(driver)
        world.undo()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One H100 in two idle halves, advertised."""
    found = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    found.settle(4)
    return found


def empty(count: int = 1) -> list[tuple[GpuModel, GpuOptions]]:
    """H100s with MIG mode on and nothing cut."""
    return [(H100, {"mig_enabled": True}) for _ in range(count)]


def cut(*instances: tuple[str, int]) -> tuple[GpuModel, GpuOptions]:
    return (H100, {"mig_enabled": True, "instances": list(instances)})


def plain() -> tuple[GpuModel, GpuOptions]:
    """An H100 with MIG mode off."""
    return (H100, {})

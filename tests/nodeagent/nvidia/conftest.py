"""Fixtures of NVIDIA's device plugin as the backend."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodeagent.conftest import plain
from tests.nodeagent.nvidia.nvidia_world import NvidiaWorld

MakeNvidia = Callable[[], NvidiaWorld]


@pytest.fixture
def make_nvidia(tmp_path: Path) -> Iterator[MakeNvidia]:
    """Worlds with two H100s; each ends the one before it."""
    made: list[NvidiaWorld] = []

    def build() -> NvidiaWorld:
        if made:
            made.pop().undo()
        folders = sum(1 for _ in tmp_path.iterdir())
        path = tmp_path / f"w{folders}"
        path.mkdir()
        made.append(NvidiaWorld(path, [plain(), plain()]))
        return made[-1]

    yield build
    for world in made:
        world.undo()


@pytest.fixture
def world(make_nvidia: MakeNvidia) -> NvidiaWorld:
    return make_nvidia()

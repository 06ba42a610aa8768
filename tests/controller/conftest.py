"""An API server, a State on it, and a world of running controllers, for each test that needs one."""

from collections.abc import Iterator

import pytest

from tests.controller.cluster import Bench, Cluster
from tests.controller.loop_rig import Rig
from tests.controller.world import World


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.server.stop()


@pytest.fixture
def bench(cluster: Cluster) -> Bench:
    return Bench(cluster)


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    world = World(cluster)
    yield world
    world.stop()


@pytest.fixture
def rig(bench: Bench) -> Rig:
    return Rig(bench)

"""An API server, a State on it, and a world of running controllers, for each test that needs one."""

from collections.abc import Iterator

import pytest

from tests.controller.cluster import ApiCluster, Bench
from tests.controller.loop_rig import LoopRig
from tests.controller.world import ControllerWorld


@pytest.fixture
def cluster() -> Iterator[ApiCluster]:
    running = ApiCluster()
    yield running
    running.server.stop()


@pytest.fixture
def bench(cluster: ApiCluster) -> Bench:
    return Bench(cluster)


@pytest.fixture
def world(cluster: ApiCluster) -> Iterator[ControllerWorld]:
    world = ControllerWorld(cluster)
    yield world
    world.stop()


@pytest.fixture
def rig(bench: Bench) -> LoopRig:
    return LoopRig(bench)

"""An API server and a State for each test that asks."""

from collections.abc import Iterator

import pytest

from tests.controller.cluster import Bench, Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.server.stop()


@pytest.fixture
def bench(cluster: Cluster) -> Bench:
    return Bench(cluster)

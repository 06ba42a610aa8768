"""An API server for each test that asks, with a scheduler or without."""

from collections.abc import Iterator

import pytest

from sandbox.scheduler import BackOff
from tests.apiserver import ApiServer
from tests.sandbox.scheduler.cluster import ScheduledCluster, scheduling


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        yield found


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[ScheduledCluster]:
    """Without back-off, so that who goes first does not depend on when each was tried before."""
    with scheduling(server, BackOff(initial_seconds=0.0)) as cluster:
        yield cluster

"""Fixtures of the tests of what the agent reports."""

from collections.abc import Iterator

import pytest

from tests.controller.cluster import Bench, Cluster
from tests.nodeagent.report.agent_and_controller import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    cluster = Cluster()
    yield Rig(Bench(cluster))
    cluster.server.stop()

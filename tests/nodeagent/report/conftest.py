"""Fixtures of the tests of what the agent reports."""

from collections.abc import Iterator

import pytest

from tests.controller.cluster import ApiCluster, Bench
from tests.nodeagent.report.agent_and_controller import PlanRig


@pytest.fixture
def rig() -> Iterator[PlanRig]:
    cluster = ApiCluster()
    yield PlanRig(Bench(cluster))
    cluster.server.stop()

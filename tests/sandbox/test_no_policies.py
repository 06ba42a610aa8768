"""What a new user sees of the sandbox's own API server, which has no admission policies: no scenario of a real one."""

from collections.abc import Iterator

import pytest

from sandbox.cluster import Cluster
from tests.builders import objects
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def sandbox() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.stop()


def test_a_node_reports_no_condition_that_reads_like_a_fault(sandbox: Cluster) -> None:
    """Its API server has no admission policies, which a new user has not left out."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "1"}
    labels["gpuplan.dev/gpu-partitioning"] = "mig"
    sandbox.start([objects.manifest(objects.node("a", labels=labels), status=False)])

    def conditions() -> dict[str, str]:
        return {
            found["type"]: found["reason"]
            for plan in sandbox.plans()
            for found in plan.get("status", {}).get("conditions", ())
        }

    eventually(lambda: conditions().get("Ready") == "Confirmed", "the plan is confirmed")
    assert conditions()["AllocatableWritten"] == "Idle"

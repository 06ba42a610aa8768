"""The sandbox's own API server and nodes run with the agent's settings that ship: no scenario of a real one."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kube import apply
from sandbox.cluster import Cluster, ClusterSettings
from tests.builders import objects
from tests.waiting import eventually

POD = "/api/v1/namespaces/default/pods/p"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
NEVER_SECONDS = 3600.0
LABELS = {
    **{
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/mig.capable": "true",
    },
    **{"gpuplan.dev/gpu-partitioning": "mig"},
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """One node, whose kubelet's status tick never comes."""
    found = Cluster(ClusterSettings(status_tick_seconds=NEVER_SECONDS))
    found.start([objects.manifest(objects.node("a", labels=LABELS), status=False)])
    yield found
    found.stop()


def test_a_pod_runs_by_the_amounts_that_the_agent_writes(sandbox: Cluster) -> None:
    sandbox.create(objects.manifest(objects.pod(requests={"nvidia.com/mig-1g.5gb": 1}), status=False))
    eventually(lambda: apply.get(sandbox.api, POD)["status"].get("phase") == "Running", "the pod runs")


def test_no_condition_reads_like_a_fault(sandbox: Cluster) -> None:
    def conditions() -> dict[str, Any]:
        found = [plan.get("status", {}).get("conditions", ()) for plan in sandbox.plans()]
        return {each["type"]: (each["status"], each["reason"]) for one in found for each in one}

    expected = {
        "AgentAlive": ("True", "Heartbeat"),
        "Applied": ("True", "AsPlanned"),
        "Ready": ("True", "Confirmed"),
        "Reconciling": ("False", "Idle"),
        "Stalled": ("False", "Idle"),
    }
    eventually(lambda: conditions() == expected, "the plan is confirmed, and nothing else is said")


def test_settings_of_the_agent_are_about_the_place_that_it_runs_in(sandbox: Cluster) -> None:
    """Folders, ports and waits for a simulated kubelet; nothing that it decides by."""
    eventually(lambda: "a" in sandbox.nodes and sandbox.nodes["a"].agent_settings.is_file(), "the agent has settings")
    written = yaml.safe_load(sandbox.nodes["a"].agent_settings.read_text())
    assert written.keys() == {
        *("stateDir", "kubeletDir", "cdiSpecDirs", "procDir", "metricsPort", "nvidiaMpsRoot", "nvidiaBackend"),
        *("kubeletStartSeconds", "releaseSlackSeconds"),
    }

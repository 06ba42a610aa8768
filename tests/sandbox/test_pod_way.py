"""One pod's way, as the programs report it: phases add up to its wait, and one generation is in every log."""

import re
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
import yaml

from sandbox.cluster import Cluster, ClusterSettings
from tests.builders.objects import manifest, node, pod
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

TOLERANCE = 0.05
GANG = "scheduling.x-k8s.io/pod-group"
"""Its pods wait for the window, however alone they come."""
SETTINGS = ClusterSettings(
    status_tick_seconds=2.0, controller={"batchWindowTimeoutSeconds": 12, "batchWindowIdleSeconds": 6}
)


@pytest.fixture
def started() -> Iterator[Cluster]:
    found = Cluster(SETTINGS)
    try:
        found.start([manifest(node("n1"))])
        yield found
    finally:
        found.stop()


def sums(cluster: Cluster, name: str) -> dict[str, float]:
    """Of each series of a histogram, by its one label."""
    port = yaml.safe_load((cluster.directory / "controller.yaml").read_text())["metricsPort"]
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    found = re.findall(rf'^{name}_sum{{\w+="([\w-]+)"}} (\S+)$', page, re.MULTILINE)
    return {label: float(value) for label, value in found if float(value)}


def phase_of(cluster: Cluster, name: str) -> str:
    return next((str(one["status"].get("phase")) for one in cluster.pods() if one["metadata"]["name"] == name), "")


def test_phases_add_up_to_the_wait(started: Cluster) -> None:
    eventually(lambda: started.plans() and started.plans()[0].get("status", {}).get("gpus"), "the agent's report")
    started.create(manifest(pod("p", metadata={"labels": {GANG: "alone"}})))
    began = time.monotonic()  # the sandbox waits for the namespace's service account first
    eventually(lambda: phase_of(started, "p") == "Running", "the pod to run", 120)
    waited = time.monotonic() - began

    wait = eventually(lambda: sums(started, "gpuplan_pod_wait_duration_seconds"), "its histogram")
    phases = sums(started, "gpuplan_pod_phase_duration_seconds")
    assert set(wait) == {"new"}
    assert {"window", "planning", "write", "actuate"} <= set(phases)
    assert sum(phases.values()) == pytest.approx(sum(wait.values()), abs=1e-6)
    assert sum(phases.values()) == pytest.approx(waited, rel=TOLERANCE)
    generation = started.plans()[0]["metadata"]["generation"]
    for name in ("controller", "agent-n1", "plugin-n1"):
        log = (started.directory / "logs" / f"{name}.log").read_text()
        assert f" generation={generation}" in log, name
        assert "Traceback" not in log

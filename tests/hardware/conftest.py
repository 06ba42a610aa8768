"""The whole product on the GPU of this machine: `make hardware`, as root, on Linux with an NVIDIA driver.

Nothing here runs without GPUPLAN_HARDWARE=1. The GPU must be idle, with MIG off; no test changes a mode or resets it.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from crds.v1alpha1 import names
from nodeagent.hardware.driver import MigMode, ObservedGpu
from nodeagent.hardware.nvml import NvmlDriver
from sandbox.cluster import Cluster
from tests.builders import objects
from tests.hardware.node import RealNode
from tests.hardware.words import Words

FIGURES: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("GPUPLAN_HARDWARE") != "1":
        for item in items:
            if item.nodeid.startswith("tests/hardware/"):
                item.add_marker(pytest.mark.skip(reason="runs on real hardware: make hardware"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in FIGURES:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def gpu() -> ObservedGpu:
    driver = NvmlDriver()
    assert driver.count() == 1, "written for a machine with one GPU"
    found = driver.observe_gpu(0)
    assert found.mig_mode is not MigMode.ENABLED, "MPS needs a GPU without MIG, and no test here changes that"
    assert not driver.processes(found), "another program uses this GPU"
    assert found.model is not None
    FIGURES.append(f"{found.name}, {found.model.memory_mib} MiB, driver {driver.version()}")
    driver.release()
    return found


@pytest.fixture(scope="module")
def words(gpu: ObservedGpu) -> Iterator[Words]:
    """A cluster whose only node has this GPU."""
    assert gpu.model is not None
    cluster = Cluster(node_type=RealNode)
    cluster.directory.chmod(0o755)
    labels = {"nvidia.com/gpu.product": gpu.model.product, "nvidia.com/gpu.count": "1"}
    labels |= {"nvidia.com/gpu.memory": str(gpu.model.memory_mib), names.LABEL_PARTITIONING: "mps"}
    cluster.start([objects.manifest(objects.node("real", labels=labels), status=False)])
    words = Words(cluster, gpu, FIGURES.append)
    words.run_mps_pod()
    yield words
    cluster.stop()

"""How long it takes from an instance that is made to a pod that runs in it, and which part takes that time.

With the kubelet's status tick at its default of ten seconds, and with the agent writing the Node's allocatable itself.
GPUPLAN_E2E_SAMPLES sets how often (3); the table is printed.
"""

import random

import pytest

from tests.e2e.kubelet.gpu_node import GpuNode
from tests.e2e.kubelet.latency import Phases, sample, table
from tests.e2e.kubelet.programs import KubeletPrograms
from tests.e2e.real_cluster import RealCluster

TICK_SECONDS = 10.0
TICK_AND_JITTER_SECONDS = 10.4
SETTINGS = {"kubeletStartSeconds": 5, "releaseSlackSeconds": 2}


@pytest.mark.parametrize("write", [False, True], ids=["status tick", "writeAllocatable"])
def test_instance_made_to_pod_running(
    cluster: RealCluster,
    kubelet_programs: KubeletPrograms,
    latency_samples: int,
    capsys: pytest.CaptureFixture[str],
    write: bool,
) -> None:
    name = "latency-write" if write else "latency-tick"
    settings = {**SETTINGS, "writeAllocatable": write}
    node = GpuNode(name, cluster, kubelet_programs, tick_seconds=TICK_SECONDS, settings=settings)
    source = random.Random(name)
    try:
        node.start()
        found = [sample(node, number, source.uniform(0, TICK_SECONDS)) for number in range(latency_samples)]
    finally:
        node.close()
    with capsys.disabled():
        print(f"\n{table(name, found)}")
    for each in found:
        check(each, write=write)


def check(found: Phases, *, write: bool) -> None:
    """Bounds that hold on a busy machine, too; the table is for people."""
    assert found.plugin < 10
    assert found.node < (5 if write else TICK_AND_JITTER_SECONDS + 5)
    assert found.from_instance < 40

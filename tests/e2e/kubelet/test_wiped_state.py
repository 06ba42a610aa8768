"""What a pod holds while the node's state directory is wiped: given once, kept whole, and free when the pod has ended.

Each running container has a real process in a cgroup of its pod. The plan needs everything gone that is on the GPU.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from kube import apply
from partitioning.resources import mig_resource
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, mig_item
from tests.e2e.kubelet.programs import KubeletPrograms
from tests.e2e.real_cluster import RealCluster
from tests.waiting import eventually

SMALL = mig_resource("1g.10gb")
HALF = mig_resource("3g.40gb")
SETTINGS = {"kubeletStartSeconds": 5, "releaseSlackSeconds": 8}
LAYOUT = mig_item(("1g.10gb", 0), ("3g.40gb", 4))
ALL_ELSE = mig_item(("7g.80gb", 0))
TIMERS_SECONDS = 12.0
"""Longer than grace period and slack together: what is held then is not held by time."""
MINUTE = 60.0


@pytest.fixture(scope="module")
def machine_node(cluster: RealCluster, kubelet_programs: KubeletPrograms) -> Iterator[GpuNode]:
    found = GpuNode("gpu-wiped", cluster, kubelet_programs, settings=SETTINGS, with_processes=True)
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture
def node(machine_node: GpuNode) -> Iterator[GpuNode]:
    """With one small slice and half a GPU, all free."""
    machine_node.write_plan(LAYOUT)
    machine_node.wait_ready()
    eventually(lambda: machine_node.offers(SMALL, 1) and machine_node.offers(HALF, 1), "all is on offer", SECONDS)
    yield machine_node
    machine_node.delete_pods()


@pytest.mark.parametrize("meanwhile", ["run", "are killed", "are away"])
def test_a_wiped_state_directory_costs_no_holder_its_slice(node: GpuNode, meanwhile: str) -> None:
    first = node.create_pod("first", HALF)
    held = node.visible(first)
    if meanwhile == "are away":
        for name in ("agent", "plugin"):
            node.supervisor.remove(name)
    wipe(node)
    if meanwhile == "are away":
        node.start_plugin()
        node.start_agent()
    if meanwhile == "are killed":
        for name in ("agent", "plugin"):
            pid = node.supervisor.children[name].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    node.write_plan(ALL_ELSE)
    began = time.monotonic()
    second = node.create_pod("second", HALF, bound=True)

    def once() -> None:
        assert held in node.slices()
        assert node.containers(first) == [("running", held)]
        assert node.containers(second) == []

    def settled() -> bool:
        once()
        return list(node.slices()) == [held] and "held by pod default/first" in node.gpu_message()

    eventually(settled, "what is free goes, and the plan names the holder alone", MINUTE, seen=node.gpu_message)
    print(f"programs {meanwhile}: no doubt {time.monotonic() - began:.0f} s after the wipe")
    while time.monotonic() - began < TIMERS_SECONDS:
        once()
        time.sleep(0.2)
    apply.delete(node.cluster.admin, f"{PODS}/first")
    began = time.monotonic()
    eventually(node.ready, "the plan is carried out", MINUTE)
    assert sorted(node.slices().values()) == [("7g.80gb", 0)]
    print(f"programs {meanwhile}: Ready {time.monotonic() - began:.0f} s after the deletion")


def wipe(node: GpuNode) -> None:
    for path in node.files.directory.parent.iterdir():
        # The programs may write meanwhile.
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

"""A real kubelet passes the CDI names of our device plugin on, and they resolve to the nodes of the very instances."""

from collections.abc import Iterator

import pytest

from nodeagent.handover.cdi import qualified_name
from partitioning.resources import mig_resource
from sandbox import cdi
from sandbox.driver import machine
from sandbox.driver.procfs import capability_minor
from tests.e2e.kubelet.gpu_node import GpuNode, mig_item
from tests.e2e.kubelet.programs import KubeletPrograms
from tests.e2e.real_cluster import RealCluster

SMALL, HALF = mig_resource("1g.10gb"), mig_resource("3g.40gb")
SETTINGS = {"kubeletStartSeconds": 5, "releaseSlackSeconds": 8, "deviceListStrategy": "cdi-cri"}


@pytest.fixture
def node(cluster: RealCluster, kubelet_programs: KubeletPrograms) -> Iterator[GpuNode]:
    found = GpuNode("gpu-cdi", cluster, kubelet_programs, settings=SETTINGS)
    try:
        found.start()
        yield found
    finally:
        found.close()


def test_two_resources_of_one_container_add_up(node: GpuNode) -> None:
    node.write_plan(mig_item(("1g.10gb", 0), ("3g.40gb", 4)))
    node.wait_ready()
    options = node.wait_running(node.create_pod("both", SMALL, HALF)).options
    assert sorted(options.cdi_names) == sorted(qualified_name(uuid) for uuid in node.slices())
    assert "NVIDIA_VISIBLE_DEVICES" not in options.env

    got = cdi.inject([node.cdi], options.cdi_names)
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    (gpu,) = machine.observe(node.machine)["gpus"]
    minors = {capability_minor(0, each["id"], key) for each in gpu["gpu_instances"] for key in (None, 0)}
    assert {each.minor for each in got.nodes if each.path.startswith("/dev/nvidia-caps/")} == minors

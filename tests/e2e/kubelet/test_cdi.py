"""A real kubelet passes the CDI names of our device plugin on, and they resolve to the nodes of the very instances."""

from nodeagent.handover.cdi import qualified_name
from sandbox import cdi
from sandbox.driver import machine
from sandbox.driver.procfs import capability_minor
from tests.e2e.kubelet.gpu_node import GpuNode, mig_item
from tests.e2e.kubelet.held import HALF, SETTINGS, SMALL

LAYOUT = mig_item(("1g.10gb", 0), ("3g.40gb", 4))
NODE = {"settings": {**SETTINGS, "deviceListStrategy": "cdi-cri"}, "with_processes": False}


def test_two_resources_of_one_container_add_up(node: GpuNode) -> None:
    options = node.wait_running(node.create_pod("both", SMALL, HALF)).options
    assert sorted(options.cdi_names) == sorted(qualified_name(uuid) for uuid in node.slices())
    assert "NVIDIA_VISIBLE_DEVICES" not in options.env

    got = cdi.inject([node.cdi], options.cdi_names)
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    (gpu,) = machine.observe(node.machine)["gpus"]
    minors = {capability_minor(0, each["id"], key) for each in gpu["gpu_instances"] for key in (None, 0)}
    assert {each.minor for each in got.nodes if each.path.startswith("/dev/nvidia-caps/")} == minors

"""What a container on a node gets, through agent, device plugin, kubelet and the container runtime's CDI."""

from nodeagent.handover.cdi import qualified_name
from sandbox.cli.tables import container_table
from sandbox.driver.machine import observe
from sandbox.driver.procfs import capability_minor
from tests.nodeagent.items import mig
from tests.nodeagent.real_node import AgentNode
from tests.waiting import eventually


def test_container_gets_the_nodes_of_its_instance_and_computes_there(node: AgentNode) -> None:
    node.plan(mig(0, ("1g.10gb", 0), ("3g.40gb", 4)))
    node.start_agent()
    eventually(node.ready, "the plan to be Ready")
    node.pod("small", "nvidia.com/mig-1g.10gb", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    eventually(lambda: node.phase("small") == "Running", "the running pod")

    (record,) = node.runtime.containers()
    options = record.request.options
    (uuid,) = record.request.device_ids["nvidia.com/mig-1g.10gb"]
    gpu = observe(node.machine)["gpus"][0]
    instance = next(each for each in gpu["gpu_instances"] if each["profile"] == "1g.10gb")
    minor = capability_minor(0, instance["id"])
    assert options.cdi_names == (qualified_name(uuid),)
    assert options.env["NVIDIA_VISIBLE_DEVICES"] == "void", "images and pods that set all get their device only"
    assert [process["gpu_instance"] for process in gpu["processes"]] == [instance["id"]]
    table = [line for line in container_table([record]).splitlines()[1:] if "mounts" not in line]
    got = [line.split("device nodes")[-1].strip() for line in table]
    capabilities = [f"nvidia-caps/nvidia-cap{each} 511:{each}" for each in (minor, minor + 1)]
    assert got == ["nvidia0 195:0", *capabilities]
    assert any(mount.container_path.startswith("/usr/lib/x86_64-linux-gnu/libcuda.so.") for mount in options.mounts)

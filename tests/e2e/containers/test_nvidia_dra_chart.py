"""NVIDIA's DRA driver and gpuplan in one cluster, each by its own chart: either remedy of the conflict, literally.

The kubelet plugin runs as its chart has it, but for the files of the driver in the kernel's /proc, which are simulated.
That what a claim holds outlives it is tested at the real kubelet (tests/e2e/kubelet/test_dra_takeover.py).
"""

from collections.abc import Iterator
from typing import Any

import pytest

from kube import apply
from tests.e2e.containers import nvidia_chart
from tests.e2e.containers.lab import Lab
from tests.e2e.containers.nvidia_chart import DRIVER, Installed
from tests.e2e.containers.simulated import HOOK
from tests.e2e.containers.test_product import AGENT, WHOLE
from tests.e2e.kubelet.nodes import minor_of
from tests.e2e.rig.containers.node import NODE
from tests.e2e.rig.controlplane import Missing
from tests.e2e.rig.nvidia.dra import DRIVER as NAME
from tests.waiting import eventually

CONFLICT = "OwnershipConflict"
SECONDS = 180.0
SERVES_CLAIMS = 34
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PLUGIN = "/usr/bin/gpu-kubelet-plugin"
LABEL = "gpuplan.dev/gpu-partitioning"
ELSEWHERE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}]
        }
    }
}
REMEDIES: dict[str, dict[str, Any]] = {
    "kubeletPlugin.affinity": {"kubeletPlugin": {"affinity": ELSEWHERE}},
    "resources.gpus.enabled=false": {"resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": False}}},
}
"""By the words of the message."""


@pytest.fixture(scope="module")
def theirs(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed in the cluster of gpuplan, which has no node."""
    found = lab.dra_driver
    if isinstance(found, Missing):
        pytest.skip(found.message)
    if minor_of(lab.plane.version) < SERVES_CLAIMS:
        pytest.skip("this control plane has no resource.k8s.io/v1")
    lab.install()
    lab.label(gpu_partitioning=None)
    programs = {
        PLUGIN: found.programs / "gpu-kubelet-plugin",
        "/bin/bash": lab.bash,
        "/usr/bin/kubelet-plugin-prestart.sh": found.sources / "hack/kubelet-plugin-prestart.sh",
    }
    scratch = tmp_path_factory.mktemp("image")
    image = nvidia_chart.image(lab, "registry.test/dra-driver-nvidia-gpu", programs, scratch, in_files=PLUGIN)
    settings = {
        "image": image,
        "nvidiaDriverRoot": str(DRIVER),
        "nvidiaCDIHookPath": str(HOOK),
        "gpuResourcesEnabledOverride": True,
        "resources": {"computeDomains": {"enabled": False}},
    }
    with nvidia_chart.driver(lab):
        release = Installed(lab, "dra-driver-nvidia-gpu", found.chart, settings)
        yield release
        lab.label(gpu_partitioning=None)
        eventually(lambda: not lab.pods_of(AGENT), "gpuplan's programs leave", SECONDS, seen=lab.report)
        release.remove()
        eventually(lambda: not slices(lab), "the kubelet takes away what it published", SECONDS)


def slices(lab: Lab) -> list[str]:
    """The devices that the driver publishes for the node."""
    found = [each["spec"] for each in apply.get(lab.cluster.admin, SLICES)["items"]]
    ours = (each for each in found if (each["driver"], each.get("nodeName")) == (NAME, NODE))
    return sorted(device["name"] for each in ours for device in each.get("devices", ()))


@pytest.mark.parametrize("remedy", REMEDIES)
def test_its_remedy_makes_the_node_gpuplans(lab: Lab, theirs: Installed, remedy: str) -> None:
    lab.label(gpu_partitioning=None)
    eventually(lambda: not lab.pods_of(AGENT), "gpuplan has no node", SECONDS, seen=lab.report)
    theirs.change({})
    eventually(lambda: {"gpu-2", "gpu-3"} <= set(slices(lab)), "its GPUs are published", SECONDS, seen=theirs.said)
    lab.label(gpu_partitioning="auto")
    message = eventually(lambda: lab.message_of(CONFLICT, "True"), "the conflict is reported", SECONDS, seen=lab.report)
    assert "NVIDIA's DRA driver runs on this node (pod dra-driver-nvidia-gpu/" in message
    assert remedy in message
    assert lab.allocatable(WHOLE) == 0, "nothing is offered twice"

    theirs.change(REMEDIES[remedy])

    eventually(lambda: not theirs.pods(), "it leaves", SECONDS, seen=theirs.said)
    eventually(lambda: not lab.condition(CONFLICT), "the conflict is over", SECONDS, seen=lab.report)
    eventually(lambda: lab.allocatable(WHOLE) == 2, "ours serves", SECONDS, seen=lab.report)

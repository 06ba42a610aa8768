"""The agent as a process wakes when the kubelet projects a new key into the pod of NVIDIA's device plugin."""

from pathlib import Path
from time import monotonic

import pytest

from kube import apply
from nodeagent.agent import Agent, PassEnd
from partitioning.nvidia_plugin import NodeConfig
from sandbox.nvidia_plugin.projection import ConfigMapVolume
from tests import incidents
from tests.builders.objects import container, manifest, pod
from tests.nodeagent.items import whole
from tests.nodeagent.real_node import NODE, PODS, AgentNode
from tests.waiting import eventually

pytestmark = pytest.mark.slow
RESYNC_SECONDS = 600.0
"""Nothing but a watch wakes the agent within the deadline of a wait."""
IDLE_SECONDS = 1.0
TAINT = "gpuplan.dev/changing"


def nvidias_pod(node: AgentNode) -> str:
    """Its UID."""
    volumes = [{"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    body = pod(
        "nvdp",
        containers=[container("nvidia-device-plugin-ctr")],
        node=NODE,
        metadata={"labels": {"app.kubernetes.io/name": "nvidia-device-plugin"}},
        volumes=volumes,
    )
    return str(apply.create(node.api, PODS, manifest(body, status=False))["metadata"]["uid"])


def test_a_projected_key_wakes_it(node: AgentNode, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, reconcile = [0.0], Agent.reconcile

    def noted(self: Agent) -> PassEnd:
        found = reconcile(self)
        ended.append(monotonic())
        return found

    monkeypatch.setattr(Agent, "reconcile", noted)
    incidents.reboot(node.machine)  # an H100 forgets its MIG mode
    config = NodeConfig()
    node.settings = node.settings.model_copy(update={"nvidia_backend": True, "resync_seconds": RESYNC_SECONDS})
    uid = nvidias_pod(node)
    folder = Path(node.settings.kubelet_dir) / "pods" / uid / "volumes/kubernetes.io~configmap/available-configs"
    volume = ConfigMapVolume(folder)
    volume.project({"default": "version: v1\n"})
    node.plan(whole(0), whole(1), backend="nvidia")
    node.start_agent()
    eventually(lambda: "does not see the key" in node.gpu().get("message", ""), "it waits for the key", seen=node.gpu)
    eventually(lambda: monotonic() > ended[-1] + IDLE_SECONDS, "what it has written wakes it no more")
    volume.project({"default": "version: v1\n", config.key: config.text})

    def tainted() -> bool:
        found = apply.get(node.api, f"/api/v1/nodes/{NODE}")
        return any(taint["key"] == TAINT for taint in found.get("spec", {}).get("taints") or ())

    eventually(tainted, "the agent sees the key", seen=node.gpu)

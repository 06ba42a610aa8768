"""A node for what the chart installed: simulated hardware, a stand-in's kubelet, and the chart's agent and plugin.

Takes a release, a short folder and ports; `values_for` gives the values with which the chart's paths lie in that
folder. The programs are processes of this machine with their containers' arguments; the pods are only scripted.
"""

import sys
from pathlib import Path
from typing import Any

from crds.v1alpha1 import names
from kube import apply
from sandbox.driver import machine
from sandbox.gpu_containers import GpuContainers
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ScriptedRuntime
from tests.builders.models import H100
from tests.builders.objects import manifest, node
from tests.e2e.chart_release import Program, Release
from tests.e2e.fleet import daemon_pod
from tests.e2e.real_cluster import AGENT, NODES, PLANS, PLUGIN, RealCluster, call
from tests.waiting import eventually

PRODUCT = "NVIDIA-H100-80GB-HBM3"
SECONDS = 120.0
SETTINGS = {"kubeletStartSeconds": 3, "releaseSlackSeconds": 2, "deviceListStrategy": "envvar"}
"""By environment: there is no procfs and no toolkit of a GPU below the chart's fixed mounts here."""


def values_for(folder: Path, controller_port: int, agent_port: int) -> dict[str, Any]:
    """Directories and ports of this machine, and shorter waits."""
    return {
        "batchWindowTimeoutSeconds": 2,
        "batchWindowIdleSeconds": 0.5,
        "controller": {"metricsPort": controller_port},
        "nodes": {
            "stateDir": str(folder / "state"),
            "kubeletDir": str(folder / "kubelet"),
            "mpsDir": str(folder / "mps"),
        },
        "agent": {"metricsPort": agent_port, "settings": SETTINGS},
    }


class ChartNode:
    """A node with simulated hardware and the chart's agent and device plugin."""

    def __init__(self, name: str, release: Release, folder: Path) -> None:
        self.name, self._folder, self._cluster = name, folder, release.cluster
        for each in ("state", "kubelet", "mps"):
            (folder / each).mkdir()
        self._machine = folder / "gpus.json"
        machine.create(self._machine, [(H100, {"mig_enabled": True})], seed=name)
        labels = {
            names.LABEL_PARTITIONING: "mig",
            names.LABEL_PRODUCT: PRODUCT,
            names.LABEL_COUNT: "1",
            names.LABEL_MEMORY: "81559",
        }
        apply.create(self._cluster.admin, NODES, manifest(node(name, labels=labels)))
        self._runtime = ScriptedRuntime(GpuContainers(self._machine))
        self._kubelet = Kubelet(
            name,
            folder / "kubelet",
            ClusterApi(self._cluster.kubelet(name), name),
            status_tick_seconds=1.0,
            runtime=self._runtime,
        )
        self.plugin = Program(release, "daemonsets", PLUGIN, folder)
        self.agent = Program(release, "daemonsets", AGENT, folder, node=name)

    def start(self) -> None:
        self._kubelet.start()
        pod = eventually(
            lambda: daemon_pod(self._cluster, AGENT, self.name), "the scheduler binds the agent's pod", SECONDS
        )
        token = self._cluster.token(AGENT, pod=pod, requester=self._cluster.kubelet(self.name))
        self.plugin.start()
        driver = (sys.executable, "-m", "sandbox.driver.run", str(self._machine), "-m", "nodeagent")
        self.agent.start("--kubeconfig", kubeconfig(self._cluster, self._folder, token), before=driver)

    def close(self) -> None:
        self.agent.kill()
        self.plugin.kill()
        self._kubelet.stop()
        self._runtime.close()
        for path in (f"{PLANS}/{self.name}", f"{NODES}/{self.name}"):
            call(self._cluster.admin, "DELETE", path, gracePeriodSeconds="0")


def kubeconfig(cluster: RealCluster, folder: Path, token: str) -> str:
    path = folder / f"{abs(hash(token))}.kubeconfig"
    path.write_text(cluster.plane.kubeconfig_with(token))
    return str(path)


def ready(cluster: RealCluster, name: str) -> bool:
    found = apply.get(cluster.admin, f"{PLANS}/{name}")
    conditions = {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions") or ()}
    same = found["status"].get("observedGeneration") == found["metadata"]["generation"]
    return same and conditions.get("Ready") == "True"

"""One node with the agent as it runs: HTTP, gRPC, threads; only hardware, kubelet and API server are stand-ins."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply, clients
from nodeagent.device_plugin.service import PluginService
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.process import AgentProcess
from nodeagent.settings import Settings
from sandbox.driver import toolkit
from sandbox.driver.machine import DRIVER_VERSION, create
from sandbox.driver.procfs import proc_of
from sandbox.gpu_containers import GpuContainers
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ScriptedRuntime
from tests import faults, incidents
from tests.apiserver import ApiServer
from tests.builders.models import H100
from tests.builders.objects import container, manifest, plan, pod

NODE = "n1"
PLAN = f"/apis/{names.API_VERSION}/{names.PLURAL}/{NODE}"
PODS = "/api/v1/namespaces/default/pods"
Raw = dict[str, Any]


class AgentNode:
    """One node on a real HTTP API."""

    def __init__(self, directory: Path, server: ApiServer) -> None:
        self.api: ApiClient = clients.for_url(server.url)
        self.directory = directory
        self.machine = directory / "gpus.json"
        self._undo = faults.install(create(self.machine, [(H100, {"mig_enabled": True})] * 2, "seed"))
        self.runtime = ScriptedRuntime(GpuContainers(self.machine))
        (directory / "kubelet").mkdir()
        self.cdi = cdi = directory / "cdi"
        toolkit.install(directory / "driver", cdi, DRIVER_VERSION, range(2))
        self.kubelet = Kubelet(
            NODE,
            directory / "kubelet",
            ClusterApi(self.api, NODE),
            status_tick_seconds=0.3,
            runtime=self.runtime,
            cdi_dirs=(cdi,),
        )
        self.settings = Settings.model_validate(
            {
                "stateDir": str(directory / "state"),
                "kubeletDir": str(directory / "kubelet"),
                "cdiSpecDirs": [str(cdi)],
                "procDir": str(proc_of(self.machine)),
                "metricsPort": 0,
                "kubeletStartSeconds": 0,
                "statusIntervalSeconds": 0.1,
                "releaseSlackSeconds": 0.5,
            }
        )
        self.plugin = PluginService(
            state_dir=directory / "state",
            kubelet_dir=directory / "kubelet",
            mps_root=directory / "mps",
            cdi_dir=cdi,
        )
        self._plugin_thread = threading.Thread(target=self.plugin.run, daemon=True)
        self.kubelet.start()
        self._plugin_thread.start()
        self.agent: AgentProcess | None = None
        self.ended_by = ""
        """Why the last agent ended by itself."""

    def replace_driver(self, version: str) -> None:
        """As the GPU Operator upgrades it: the toolkit follows."""
        incidents.replace_driver(self.machine, version)
        toolkit.install(self.directory / "driver", self.cdi, version, range(2))

    def start_agent(self) -> AgentProcess:
        agent = self.agent = AgentProcess(
            NODE, self.settings, clients.for_url(self.api.configuration.host), NvmlDriver()
        )
        agent.start()
        self._agent_thread = threading.Thread(target=self._run, args=(agent,), daemon=True)
        self._agent_thread.start()
        return agent

    def _run(self, agent: AgentProcess) -> None:
        self.ended_by = agent.run()

    def running(self) -> bool:
        """The agent still makes passes."""
        return self._agent_thread.is_alive()

    def stop_agent(self) -> None:
        if self.agent is not None:
            self.agent.stop()
            self._agent_thread.join(10)
            assert not self._agent_thread.is_alive()
            self.agent.close()
            self.agent = None

    def stop(self) -> None:
        self.stop_agent()
        self.plugin.stop()
        self._plugin_thread.join(10)
        self.kubelet.stop()
        self.runtime.close()
        self._undo()

    def plan(self, *gpus: Raw, backend: str = "gpuplan") -> None:
        spec = {"gpus": list(gpus), "devicePlugin": {"backend": backend}}
        apply.apply(self.api, PLAN, manifest(plan(NODE, spec=spec)), manager="test", force=True)

    def ready(self) -> bool:
        plan = apply.get(self.api, PLAN)
        conditions = plan.get("status", {}).get("conditions", [])
        return any(
            c["type"] == "Ready" and c["status"] == "True" and c["observedGeneration"] == plan["metadata"]["generation"]
            for c in conditions
        )

    def gpu(self, index: int = 0) -> Raw:
        gpus = apply.get(self.api, PLAN).get("status", {}).get("gpus") or [{}] * 2
        return dict(gpus[index])

    def layouts(self) -> list[str]:
        return [str(gpu.layout) for gpu in NvmlDriver().observe()]

    def pod(self, name: str, resource: str, env: Mapping[str, str] | None = None) -> None:
        main = container(limits={resource: "1"}, image="x", sleep=3600, env=env)
        body = pod(name, containers=[main], node=NODE, terminationGracePeriodSeconds=2)
        apply.create(self.api, PODS, manifest(body, status=False))

    def phase(self, name: str) -> str:
        return str(apply.get(self.api, f"{PODS}/{name}").get("status", {}).get("phase", ""))

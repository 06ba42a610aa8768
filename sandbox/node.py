"""Runs one simulated GPU node: hardware, kubelet, and the product's agent, device plugin and MPS supervisor.

Takes GPUs as values and runs until `stop`. The agent runs unmodified, with the simulated driver beneath pynvml, and the
supervisor with the simulated nvidia-cuda-mps-control first on its PATH.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import ApiClient

from cli.hardware import Gpu
from sandbox.driver import machine, toolkit
from sandbox.driver.procfs import proc_of
from sandbox.gpu_containers import GpuContainers
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ContainerHooks, ScriptedRuntime
from sandbox.kubelet.settings import Timings
from sandbox.mps import search_path
from sandbox.nvidia_plugin.node import NvidiaNode
from sandbox.ports import HeldPort
from sandbox.supervisor import Supervisor

KUBELET_START_SECONDS = 3.0
"""The stand-in knows its pods 1.1 s after its start; a real one may take longer, hence the agent's default of 60."""


RELEASE_SLACK_SECONDS = 2.0
"""How long a device of a pod that vanished stays in use beyond the pod's grace; the agent's default is 30."""


class SandboxNode:
    """The parts of one node below a folder of its own."""

    nvidia_type: type[NvidiaNode] = NvidiaNode

    def __init__(
        self,
        *,
        name: str,
        gpus: Sequence[Gpu],
        root: Path,
        kubeconfig: Path,
        api: ApiClient,
        supervisor: Supervisor,
        status_tick_seconds: float,
        nvidia: ApiClient | None = None,
    ) -> None:
        """`nvidia`: NVIDIA's device plugin runs here, and works with this client."""
        self.name = name
        self.root = root
        self._gpus = tuple(gpus)
        self._kubeconfig = kubeconfig
        self._supervisor = supervisor
        self._metrics_port = HeldPort()
        self.machine = root / "gpus.json"
        self._cdi = root / "cdi"
        self.nvidia = nvidia and self.nvidia_type(
            nvidia, name, kubelet_dir=root / "kubelet", mps_root=root / "m", machine=self.machine
        )
        for folder in (root / "kubelet", root / "state", root / "mps"):
            folder.mkdir(parents=True, exist_ok=True)
        self.runtime = ScriptedRuntime(self._containers())
        self.kubelet = Kubelet(
            name,
            root / "kubelet",
            ClusterApi(api, name),
            status_tick_seconds=status_tick_seconds,
            runtime=self.runtime,
            timings=self._timings(),
            cdi_dirs=(self._cdi,),
        )

    @property
    def has_gpus(self) -> bool:
        """Without any, no agent and no device plugin run here."""
        return bool(self._gpus)

    @property
    def agent(self) -> str:
        """Name of the agent among the supervised processes."""
        return f"agent-{self.name}"

    @property
    def agent_settings(self) -> Path:
        """The agent's settings file."""
        return self.root / "agent.yaml"

    @property
    def plugin(self) -> str:
        """Name of the device plugin among the supervised processes."""
        return f"plugin-{self.name}"

    @property
    def mps(self) -> str:
        """Name of the supervisor of MPS daemons among the supervised processes."""
        return f"mps-{self.name}"

    def _timings(self) -> Timings:
        return Timings()

    def _containers(self) -> ContainerHooks:
        return GpuContainers(self.machine)

    def _install_driver(self) -> None:
        """Hardware keeps its state when the node was there before."""
        if not self.machine.exists():
            machine.create(self.machine, [(gpu.model, _options(gpu)) for gpu in self._gpus], seed=self.name)
        minors = range(len(self._gpus))
        toolkit.install(self.root / "driver", self._cdi, machine.observe(self.machine)["driver_version"], minors)

    def _programs(self) -> str:
        """The PATH on which the supervisor finds nvidia-cuda-mps-control."""
        return search_path(os.environ.get("PATH", ""))

    def _on_hardware(self, *program: str) -> tuple[str, list[str]]:
        """Module and arguments that run a program where it sees this node's GPUs."""
        return "sandbox.driver.run", [str(self.machine), "-m", *program]

    @property
    def _proc(self) -> Path:
        return proc_of(self.machine)

    def start(self) -> None:
        """Power the node on."""
        self.kubelet.start()
        if not self._gpus:
            return
        self._install_driver()
        state, kubelet, mps = str(self.root / "state"), str(self.root / "kubelet"), str(self.root / "mps")
        self._supervisor.add(
            self.plugin,
            "nodeagent.device_plugin",
            ["--state-dir", state, "--kubelet-dir", kubelet, "--mps-root", mps, "--cdi-dir", str(self._cdi)],
        )
        self._supervisor.add(
            self.mps,
            "nodeagent.mps",
            ["--state-dir", state, "--mps-root", mps],
            env={"PATH": self._programs()},
        )
        self._write_agent_settings()
        if self.nvidia:
            self.nvidia.start()
        self.start_agent()

    def _write_agent_settings(self) -> None:
        """Whole, or not at all: another thread may read them as soon as they are there."""
        written = self.agent_settings.with_suffix(".new")
        written.write_text(yaml.safe_dump(self._agent_settings()))
        written.replace(self.agent_settings)

    def start_agent(self) -> None:
        """Run the agent; again, where it was removed from the supervised processes."""
        files = ("--config", str(self.agent_settings), "--kubeconfig", str(self._kubeconfig))
        agent = ("nodeagent", "--node-name", self.name, *files)
        self._supervisor.add(self.agent, *self._on_hardware(*agent))

    def _agent_settings(self) -> dict[str, Any]:
        return {
            "stateDir": str(self.root / "state"),
            "kubeletDir": str(self.root / "kubelet"),
            "cdiSpecDirs": [str(self._cdi)],
            "procDir": str(self._proc),
            "metricsPort": self._metrics_port.number,
            "kubeletStartSeconds": KUBELET_START_SECONDS,
            "releaseSlackSeconds": RELEASE_SLACK_SECONDS,
            "nvidiaBackend": self.nvidia is not None,
            "nvidiaMpsRoot": str(self.root / "m"),
        }

    def stop(self) -> None:
        """Power the node off."""
        if self.nvidia:
            self.nvidia.stop()
        self._supervisor.remove(self.agent)
        self._supervisor.remove(self.plugin)
        self._supervisor.remove(self.mps)
        self.kubelet.stop()
        self.runtime.close()
        self._metrics_port.close()


def _options(gpu: Gpu) -> machine.GpuOptions:
    return {
        "name": gpu.name,
        "memory_mib": gpu.memory_mib,
        "mig_enabled": gpu.mig_enabled,
        "instances": [(instance.profile, instance.start) for instance in gpu.layout],
    }

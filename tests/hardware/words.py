"""What the tests on real hardware say and see: pods, the plan, the programs in containers, the daemon."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kube import apply
from nodeagent.handover.mps_client import pipe_directory
from nodeagent.hardware.driver import ObservedGpu
from partitioning.mps import slice_of_gb
from sandbox.cluster import Cluster
from tests.builders import objects
from tests.hardware.node import MOST_MIB_VARIABLE, MPS_CONTROL, MPS_POD, RealNode
from tests.waiting import eventually

PLAN = "/apis/gpuplan.dev/v1alpha1/gpupartitionplans/real"
PODS = "/api/v1/namespaces/default/pods"


class Words:
    def __init__(self, cluster: Cluster, gpu: ObservedGpu, report: Callable[[str], None]) -> None:
        self.cluster, self.gpu, self.report = cluster, gpu, report

    @property
    def memory_mib(self) -> int:
        assert self.gpu.model is not None
        return self.gpu.model.memory_mib

    @property
    def node(self) -> RealNode:
        found = self.cluster.nodes["real"]
        assert isinstance(found, RealNode)
        return found

    def run_mps_pod(self) -> None:
        """The DaemonSet's, in whose cgroup the MPS daemons run."""
        eventually(lambda: "real" in self.cluster.nodes, "the node is there")
        self.cluster.create(
            objects.manifest(objects.pod(MPS_POD, containers=[objects.container()], node="real"), status=False)
        )
        eventually(self.node.mps_pod_runs, "its pod runs", seen=self.state)

    def create(self, name: str, resource: str, most_mib: int = 256) -> None:
        main = objects.container(limits={resource: "1"}, env={MOST_MIB_VARIABLE: str(most_mib)})
        self.cluster.create(objects.manifest(objects.pod(name, containers=[main], terminationGracePeriodSeconds=1)))

    def client(self, pod: str) -> dict[str, Any]:
        """What the program of a pod saw when it had its memory."""
        return eventually(lambda: next(iter(self.node.clients.lines(pod)), None), f"{pod} runs", seen=self.state)

    def last_line(self, pod: str) -> dict[str, Any]:
        return self.node.clients.lines(pod)[-1]

    def delete(self, *pods: str) -> None:
        for pod in pods:
            apply.delete(self.cluster.api, f"{PODS}/{pod}", uid=None)
        eventually(lambda: not {pod["metadata"]["name"] for pod in self.cluster.pods()}.intersection(pods), "they end")

    def pin(self, slices: Iterable[Mapping[str, Any]] | None) -> None:
        """Pin slices and wait until pods can get them; None leaves the GPU to the controller."""
        gpus = [] if slices is None else [{"index": 0, "mps": {"slices": list(slices)}}]
        patched = apply.merge_patch(self.cluster.api, PLAN, {"spec": {"gpus": gpus}})
        if gpus:
            generation = patched["metadata"]["generation"]
            eventually(lambda: self._is_ready(generation), "the slices are there", seen=self.state)

    def _is_ready(self, generation: int) -> bool:
        conditions = {found["type"]: found for found in self.plan()["status"]["conditions"]}
        ready = conditions["Ready"]
        return bool(ready["status"] == "True" and ready["observedGeneration"] >= generation)

    def plan(self) -> dict[str, Any]:
        return dict(apply.get(self.cluster.api, PLAN))

    def held_by(self, pod: str) -> str:
        """What the status says of a GPU whose pod is gone and has left something; empty if nothing."""
        found = (str(gpu) for gpu in self.plan()["status"].get("gpus", ()))
        return next((gpu for gpu in found if f"left of pod {pod}" in gpu), "")

    def state(self) -> object:
        """For a failure: plan, pods, and the ends of the logs."""
        status = self.plan().get("status", {})
        logs = {name: child.tail(25) for name, child in self.cluster.supervisor.children.items()}
        pods = {pod["metadata"]["name"]: pod["status"] for pod in self.cluster.pods()}
        return {"conditions": status.get("conditions"), "gpus": status.get("gpus"), "pods": pods, "logs": logs}

    def restart(self, part: str) -> None:
        """Kill the agent, the plugin or the MPS supervisor, and wait until its successor has done its first work."""
        child = self.cluster.supervisor.children[getattr(self.node, part)]
        registered = f"{slice_of_gb(5).resource} registered"
        sign = {"agent": "serving /healthz", "plugin": registered, "mps": "keeping MPS daemons"}[part]
        killed, before = child.pid, child.log.read_text(encoding="utf-8").count(sign)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: child.log.read_text(encoding="utf-8").count(sign) > before, f"the {part} is back")

    @property
    def pipe(self) -> Path:
        return pipe_directory(self.node.root / "mps", self.gpu.uuid)

    def control(self, command: str) -> str:
        done = subprocess.run(
            [MPS_CONTROL],
            check=False,
            input=f"{command}\n",
            text=True,
            capture_output=True,
            timeout=10,
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)},
        )
        return done.stdout + done.stderr

    def daemon_pid(self) -> int:
        return int((self.pipe / f"{MPS_CONTROL}.pid").read_text(encoding="ascii").strip())

    def kill_daemon(self) -> float:
        """Seconds until another one answers."""
        killed, began = self.daemon_pid(), time.monotonic()
        os.kill(killed, signal.SIGKILL)
        eventually(
            lambda: self.daemon_pid() != killed and "Cannot find" not in self.control("get_server_list"), "it is back"
        )
        return time.monotonic() - began

"""What a runbook is followed on: real servers, simulated nodes, Prometheus, and gpuplan's pods as processes.

Takes programs and a folder. Agents and controller run while their pods exist, with a token of that pod, and again when
it is replaced, as containers would; kubectl reads their logs and pages through `front`. Times are shorter than in a
cluster: heartbeats, resyncs, and how long a silent agent is waited for.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from crds.v1alpha1 import names
from kube import apply
from kube.errors import ApiError
from kube.reflector import Reflector
from sandbox.cluster import CONTROLLER, Cluster
from sandbox.control_plane import Role, write_kubeconfig
from sandbox.node import SandboxNode
from tests.e2e.monitored import Monitored
from tests.e2e.real_cluster import MERGE, PLANS, call
from tests.e2e.real_cluster import PODS as OWN_PODS
from tests.e2e.recovery import PODS, add_pod, await_running, conditions, gpu_node, partitions
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.tenants import MANIFESTS, RealServers, objects_of
from tests.e2e.runbooks import obstacles, page
from tests.e2e.runbooks.front import Front, Process
from tests.waiting import eventually

DEPLOYMENT = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/deployments/gpuplan-controller"
NODES = ("one", "two", "three", "four")
MPS = "shared"
SECONDS = 120.0
QUICK_AGENT = {"heartbeatSeconds": 1, "resyncSeconds": 2, "allocatableDeadlineSeconds": 5, "loadedDeadlineSeconds": 5}
QUICK_CONTROLLER = {"agentSilentSeconds": 6, "taintRemovalSeconds": 6}
Json = dict[str, Any]


class QuickNode(SandboxNode):
    """Its agent does not keep anyone waiting."""

    def _agent_settings(self) -> Json:
        return {**super()._agent_settings(), **QUICK_AGENT}


class Stage:
    """Use as a context."""

    def __init__(self, programs: Binaries, prometheus: Path, folder: Path) -> None:
        self._folder = folder
        self._servers = RealServers(RealControlPlane(programs, directory=folder / "plane"))
        self.cluster = Cluster(control_plane=self._servers, node_type=QuickNode)
        self.monitored = Monitored(folder, prometheus, self.cluster)
        self._lock = threading.Lock()
        self._pods: dict[str, str] = {}
        """The uid of the pod that a process stands for, by the name of the process."""
        self._names: dict[str, str] = {}
        """The process of a pod, by the pod's name."""
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "Stage":
        nodes = [*(gpu_node(name, 1) for name in NODES), _mps_node()]
        self._exits.callback(self.monitored.__exit__)
        try:
            self.monitored.start(nodes)
            self._follow_pods()
            self.set_controller(**QUICK_CONTROLLER)
            for name in (*NODES, MPS):
                self.await_ready(name)
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _follow_pods(self) -> None:
        watch = Reflector(self.cluster.api, OWN_PODS, project=lambda pod: pod, on_change=self._pod_changed)
        front = self._exits.enter_context(Front(self.cluster.api, self._process_of))
        (self._folder / "front.kubeconfig").write_text(front.kubeconfig())
        deployment = next(
            body for body in objects_of((MANIFESTS / "40-controller.yaml").read_text()) if body["kind"] == "Deployment"
        )
        deployment["spec"]["replicas"] = 1
        apply.apply(self.cluster.api, DEPLOYMENT, deployment, manager="gpuplan-sandbox", force=True)
        watch.start()
        self._exits.callback(watch.stop)
        eventually(lambda: CONTROLLER in self._pods, "the controller's pod", SECONDS)

    def _pod_changed(self, _key: object, old: Json | None, new: Json | None) -> None:
        pod = new or old
        assert pod is not None
        process = self._process_name(pod)
        uid = pod["metadata"]["uid"]
        with self._lock:
            ends = new is None or "deletionTimestamp" in new["metadata"]
            if not process or not pod["spec"].get("nodeName") or ends is not (self._pods.get(process) == uid):
                return
            if process.split("-")[0] in ("plugin", "mps"):
                self._pods[process], self._names[pod["metadata"]["name"]] = uid, process
            elif ends:
                del self._pods[process]
                self.cluster.supervisor.remove(process)
            else:
                first = process not in self._names.values() and process != CONTROLLER
                self._pods[process], self._names[pod["metadata"]["name"]] = uid, process
                if not first:  # the cluster has started it
                    self._run(process, pod)
            self._scrape()

    def _scrape(self) -> None:
        lacking = {node.name for node in self.cluster.nodes.values() if node.agent not in self._pods}
        self.monitored.scrape(without=lacking)

    def _process_name(self, pod: Json) -> str:
        name = pod["metadata"]["labels"].get("app.kubernetes.io/name")
        node = self.cluster.nodes.get(pod["spec"].get("nodeName", ""))
        if name == "gpuplan-controller":
            return CONTROLLER
        if node is None:
            return ""
        return {"gpuplan-agent": node.agent, "gpuplan-device-plugin": node.plugin, "gpuplan-mps": node.mps}.get(
            name, ""
        )

    def _run(self, process: str, pod: Json) -> None:
        self.cluster.supervisor.remove(process)
        if process == CONTROLLER:
            self._run_controller(pod["metadata"]["name"])
            return
        node = self.cluster.nodes[pod["spec"]["nodeName"]]
        write_kubeconfig(self._servers, self.cluster.directory, Role.AGENT, node.name)
        node.start_agent()

    def _run_controller(self, pod: str, env: Mapping[str, str] | None = None) -> None:
        kubeconfig = write_kubeconfig(self._servers, self.cluster.directory, Role.CONTROLLER)
        arguments = ["--config", str(self._controller_settings), "--kubeconfig", str(kubeconfig)]
        module = "tests.e2e.runbooks.in_pod"
        self.cluster.supervisor.add(CONTROLLER, module, [pod, "controller", *arguments], env)

    def _process_of(self, pod: str) -> Process | None:
        process = self._names.get(pod, "")
        log = self.cluster.directory / "logs" / f"{process}.log"
        if process == CONTROLLER:
            return Process(log=log, port=_port(self._controller_settings), named_port=9840)
        for node in self.cluster.nodes.values():
            if process == node.agent:
                return Process(log=log, port=_port(node.agent_settings), named_port=9841)
        return Process(log=log, port=0, named_port=0) if process else None

    @property
    def _controller_settings(self) -> Path:
        return self.cluster.directory / "controller.yaml"

    def restart_controller(self, **env: str) -> None:
        """The process alone, as another version of it where `env` says so."""
        pod = next(name for name, process in self._names.items() if process == CONTROLLER and self._is_now(name))
        with self._lock:
            self.cluster.supervisor.remove(CONTROLLER)
            self._run_controller(pod, env)

    def _is_now(self, pod: str) -> bool:
        with contextlib.suppress(ApiError):
            return bool(apply.get(self.cluster.api, f"{OWN_PODS}/{pod}")["metadata"]["uid"] == self._pods[CONTROLLER])
        return False

    def set_controller(self, **settings: Any) -> None:
        """Change its settings, and let it read them."""
        path = self._controller_settings
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))
        self.restart_controller()
        self.eventually(self.cluster.decisions, "a pass with these settings")

    def shell(self, line: str) -> str:
        """What a line of a page prints, output and errors."""
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._folder / "front.kubeconfig"),
            "HOME": str(self._folder),
        }
        here = line.replace("127.0.0.1:9840/", f"127.0.0.1:{_port(self._controller_settings)}/")
        done = subprocess.run(
            ["bash", "-c", here], env=env, cwd=page.ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return done.stdout + done.stderr

    def mitigate(self, alert: str, begins: str, **values: str) -> str:
        """Run the command of the alert's mitigation that begins so."""
        return self.shell(page.filled(page.mitigation(alert, begins), values))

    def apply_again(self, *files: str) -> None:
        """The manifests, as the chart again."""
        self.shell(f"kubectl apply {' '.join(f'-f deploy/manifests/{file}' for file in files)}")

    def pod(self, name: str, node: str, resource: str, **spec: Any) -> None:
        add_pod(self.cluster, name, node, resource, **spec)

    def phase(self, name: str) -> str:
        return str(apply.get(self.cluster.api, f"{PODS}/{name}").get("status", {}).get("phase"))

    def partitions(self, node: str) -> list[str]:
        """Resources of the MIG partitions in the plan's status."""
        return partitions(self.cluster, node)

    def end_process(self, name: str) -> None:
        """It crashes, and is started again."""
        pid = self.cluster.supervisor.children[name].pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def await_running(self, *pods: str) -> None:
        await_running(self.cluster, *pods)

    def plan(self, node: str) -> Json:
        return dict(apply.get(self.cluster.api, f"{PLANS}/{node}"))

    def await_ready(self, node: str) -> None:
        def ready() -> bool:
            with contextlib.suppress(ApiError):
                plan = self.plan(node)
                found = conditions(plan).get("Ready", {})
                return (found.get("status"), found.get("observedGeneration")) == (
                    "True",
                    plan["metadata"]["generation"],
                )
            return False

        eventually(ready, f"plan {node} to be Ready", SECONDS, seen=lambda: self.plan(node).get("status"))

    def set_plan(self, node: str, **spec: Any) -> None:
        apply.merge_patch(self.cluster.api, f"{PLANS}/{node}", {"spec": spec})

    def pin(self, node: str, *profiles: str) -> None:
        """One instance of each on its GPU."""
        instances = [{"profile": profile, "count": 1} for profile in profiles]
        self.set_plan(node, gpus=[{"index": 0, "mig": {"instances": instances}}])

    def clear(self) -> None:
        """No pods of users, no instances; every node enabled, nothing pinned, nothing paused."""
        self.shell("kubectl delete pods --all --now --wait=false")
        obstacles.remove(self.cluster.api)
        self.shell(f"kubectl label node {' '.join(NODES)} {names.LABEL_PARTITIONING}=mig")
        self.set_plan(MPS, gpus=None, paused=None, mode=None)
        self.eventually(lambda: not self.cluster.pods(), "the pods to end")
        for gpus in ([{"index": 0, "mig": {"instances": []}}], None):
            for node in NODES:
                self.set_plan(node, gpus=gpus, paused=None, mode=None)
            for node in (*NODES, MPS):
                self.await_ready(node)

    def gpus(self, node: str) -> list[Json]:
        """Of the plan's status."""
        return list(self.plan(node).get("status", {}).get("gpus") or [])

    def try_plan(self, node: str, **spec: Any) -> bool:
        """The same, where it may be refused."""
        return call(self.cluster.api, "PATCH", f"{PLANS}/{node}", {"spec": spec}, MERGE).allowed

    def eventually(self, observe: Callable[[], object], what: str, seen: Callable[[], object] | None = None) -> None:
        eventually(observe, what, SECONDS, seen=seen)


def _mps_node() -> Json:
    raw = gpu_node(MPS, 1)
    raw["metadata"]["labels"][names.LABEL_PARTITIONING] = "mps"
    return raw


def _port(settings: Path) -> int:
    return int(yaml.safe_load(settings.read_text())["metricsPort"])

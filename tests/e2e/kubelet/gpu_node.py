"""A GPU node with a real kubelet: simulated hardware, our agent and our device plugin as processes.

Takes a cluster with deploy/ applied, programs, GPUs; gives a Node that the kubelet registered, DaemonSet pods that it
runs (without processes), and an agent with the very token that the kubelet mounted into its pod. Pods reach the node
through the real scheduler.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from crds.v1alpha1 import names
from kube import apply
from kube.errors import NotFound
from nodeagent.handover.config import PluginFiles
from nodeagent.observed.kubelet import Allocatable, Kubelet
from sandbox.driver import machine, toolkit
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.procfs import proc_of
from sandbox.mps import search_path
from sandbox.supervisor import Supervisor
from tests.builders import objects
from tests.builders.models import H100
from tests.e2e.fleet import daemon_pod
from tests.e2e.kubelet.pod_processes import PodProcesses
from tests.e2e.kubelet.programs import KubeletPrograms
from tests.e2e.real_cluster import AGENT, NODES, PLANS, PLUGIN, RealCluster, plan
from tests.e2e.rig.realkubelet import Container, RealKubelet
from tests.waiting import eventually

PRODUCT = "NVIDIA-H100-80GB-HBM3"
PODS = "/api/v1/namespaces/default/pods"
SECONDS = 180.0
TOKEN = "volumes/kubernetes.io~projected/kube-api-access-*/token"
Raw = dict[str, Any]


class GpuNode:
    """Start with `start`, end with `close`."""

    def __init__(
        self,
        name: str,
        cluster: RealCluster,
        programs: KubeletPrograms,
        *,
        mig: Sequence[bool] = (True,),
        tick_seconds: float = 1.0,
        settings: Mapping[str, Any] | None = None,
        with_processes: bool = False,
        agents_wire: Callable[[str], str] = lambda kubeconfig: kubeconfig,
    ) -> None:
        """`with_processes`: its pods have some, so that the agent judges by them. `agents_wire` puts something between
        the agent and the API server."""
        self._agents_wire = agents_wire
        self.name = name
        self.cluster = cluster
        self.folder = Path(tempfile.mkdtemp(prefix="gpn", dir="/tmp"))
        self._settings = dict(settings or {})
        self._mig = tuple(mig)
        self.machine = self.folder / "gpus.json"
        self.cdi = self.folder / "cdi"
        self.files = PluginFiles(self.folder / "state")
        for folder in ("state", "mps", "logs"):
            (self.folder / folder).mkdir()
        self.supervisor = Supervisor(self.folder / "logs")
        labels = {
            names.LABEL_PARTITIONING: "auto",
            names.LABEL_PRODUCT: PRODUCT,
            names.LABEL_COUNT: str(len(self._mig)),
            names.LABEL_MEMORY: "81559",
        }
        self.kubelet = RealKubelet(
            name,
            self.folder,
            kubelet=programs.kubelet,
            version=cluster.plane.version,
            runtime=programs.runtime,
            kubeconfig=cluster.plane.kubeconfig_of(f"system:node:{name}", ("system:nodes",)),
            status_tick_seconds=tick_seconds,
            labels=labels,
        )
        self.processes = PodProcesses(self.kubelet.runtime, proc_of(self.machine), name) if with_processes else None
        self._pod_resources = Kubelet(self.kubelet.paths.root, clock=time.monotonic, wall_clock=time.time)

    def start(self) -> None:
        machine.create(self.machine, [(H100, {"mig_enabled": on}) for on in self._mig], seed=self.name)
        toolkit.install(self.folder / "driver", self.cdi, machine.DRIVER_VERSION, range(len(self._mig)))
        self.kubelet.start()
        if self.processes is not None:
            self.processes.start()
        eventually(self._running_daemons, f"DaemonSet pods run on {self.name}", SECONDS)
        self.start_plugin()
        self.start_mps()
        self.start_agent()

    def start_plugin(self) -> None:
        folders = (self.folder / "state", self.kubelet.paths.root, self.folder / "mps", self.cdi)
        flags = ("--state-dir", "--kubelet-dir", "--mps-root", "--cdi-dir")
        arguments = [word for pair in zip(flags, map(str, folders), strict=True) for word in pair]
        self.supervisor.add("plugin", "nodeagent.device_plugin", arguments)

    def start_mps(self) -> None:
        arguments = ["--state-dir", str(self.folder / "state"), "--mps-root", str(self.folder / "mps")]
        path = search_path(os.environ.get("PATH", ""))
        self.supervisor.add("mps", "nodeagent.mps", arguments, env={"PATH": path})

    def start_agent(self) -> None:
        kubeconfig = self.folder / "agent.kubeconfig"
        kubeconfig.write_text(self._agents_wire(self.cluster.plane.kubeconfig_with(self.mounted_token())))
        config = self.folder / "agent.yaml"
        folders = {"stateDir": str(self.folder / "state"), "kubeletDir": str(self.kubelet.paths.root)}
        cdi = {"cdiSpecDirs": [str(self.cdi)], "procDir": str(proc_of(self.machine))}
        # The runtime below this kubelet records what a container is given, and resolves no CDI names.
        folders["deviceListStrategy"] = "envvar"
        config.write_text(yaml.safe_dump({**folders, **cdi, "metricsPort": 0, **self._settings}))
        words = [str(self.machine), "-m", "nodeagent", "--node-name", self.name]
        words += ["--config", str(config), "--kubeconfig", str(kubeconfig)]
        self.supervisor.add("agent", "sandbox.driver.run", words)

    def mounted_token(self) -> str:
        """What the kubelet has put into the agent's pod; the volume lies in the kubelet's own mount namespace."""
        pod = daemon_pod(self.cluster, AGENT, self.name)
        assert pod is not None
        root = Path(f"/proc/{self.kubelet.pid}/root")
        volumes = root / self.kubelet.paths.root.relative_to("/") / "pods" / pod["metadata"]["uid"]
        # A kubelet that has just started mounts it again.
        token: Path = eventually(lambda: next(volumes.glob(TOKEN), None), "the agent's token is mounted", SECONDS)
        return token.read_text()

    def close(self) -> None:
        self.supervisor.stop()
        for pod in apply.get(self.cluster.admin, PODS, query={"fieldSelector": f"spec.nodeName={self.name}"})["items"]:
            apply.delete(self.cluster.admin, f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)
        if self.processes is not None:
            self.processes.stop()
        self.kubelet.close()
        for path in (f"{PLANS}/{self.name}", f"{NODES}/{self.name}"):
            self.cluster.kubectl("delete", "--ignore-not-found", "--raw", path)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _running_daemons(self) -> bool:
        pods = [daemon_pod(self.cluster, daemon_set, self.name) for daemon_set in (AGENT, PLUGIN)]
        return all(pod is not None and pod["status"].get("phase") == "Running" for pod in pods)

    def write_plan(self, *items: Raw) -> Raw:
        """A Manual plan with these pinned GPUs, as a person writes it."""
        body = plan(self.name, mode="Manual", gpus=list(items))
        path = f"{PLANS}/{self.name}"
        return apply.apply(self.cluster.admin, path, body, manager="person", force=True)

    def ready(self) -> bool:
        """The plan's newest version is carried out, and the Node shows it."""
        found = apply.get(self.cluster.admin, f"{PLANS}/{self.name}")
        status = found.get("status") or {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        same = status.get("observedGeneration") == found["metadata"]["generation"]
        return same and conditions.get("Ready") == "True"

    def wait_ready(self) -> None:
        try:
            eventually(self.ready, f"the plan of {self.name} is Ready", SECONDS)
        except AssertionError as error:
            status = apply.get(self.cluster.admin, f"{PLANS}/{self.name}").get("status")
            raise AssertionError(f"{error}: {status}") from error

    def slices(self, gpu: int = 0) -> dict[str, tuple[str, int]]:
        """MIG devices of one GPU as the hardware has them: profile size and start by UUID."""
        state = machine.observe(self.machine)["gpus"][gpu]
        return {
            mig_device_uuid(state, instance, compute): (str(instance["profile"]), int(instance["start"]))
            for instance, compute in mig_devices(state)
        }

    def allocatable(self, resource: str) -> str | None:
        node = apply.get(self.cluster.admin, f"{NODES}/{self.name}")
        found: str | None = node["status"]["allocatable"].get(resource)
        return found

    def offered(self, resource: str) -> tuple[str, ...]:
        """Ids that the kubelet has from our plugin, once it answers."""
        return eventually(self._answer, "the kubelet answers", SECONDS).ids.get(resource, ())

    def _answer(self) -> Allocatable | None:
        """None where the kubelet is away, or has been asked too often."""
        answer = self._pod_resources.allocatable()
        return answer if isinstance(answer, Allocatable) else None

    def offers(self, resource: str, count: int) -> bool:
        """The kubelet has them, and the Node shows them: an older Node can show them when the plugin is away."""
        return len(self.offered(resource)) == count and int(self.allocatable(resource) or 0) == count

    def create_pod(
        self,
        name: str,
        *resources: str,
        grace_seconds: int = 1,
        bound: bool = False,
        restart_policy: str = "Never",
        runs_seconds: float | None = None,
        **script: str,
    ) -> Raw:
        """For the scheduler, which has no other node with such a resource to choose; or `bound` past it."""
        annotations = {f"sandbox.gpuplan.dev/{key.replace('_', '-')}": value for key, value in script.items()}
        container = objects.container(
            "c", dict.fromkeys(resources, "1"), image="gpuplan.test/image:1", sleep=runs_seconds
        )
        placement: Raw = {"nodeName": self.name} if bound else {}
        body = objects.pod(
            name,
            containers=[container],
            metadata={"annotations": annotations},
            nodeSelector={"kubernetes.io/hostname": self.name},
            terminationGracePeriodSeconds=grace_seconds,
            restartPolicy=restart_policy,
            dnsPolicy="Default",
            **placement,
        )
        return apply.create(self.cluster.admin, PODS, objects.manifest(body))

    def wait_running(self, raw: Raw) -> Container:
        """Its container, which runs."""
        path = f"{PODS}/{raw['metadata']['name']}"
        try:
            eventually(lambda: self.phase(raw) == "Running", f"{raw['metadata']['name']} runs", SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {apply.get(self.cluster.admin, path)['status']}") from error
        return self.kubelet.runtime.containers(raw["metadata"]["uid"])[-1]

    def phase(self, raw: Raw) -> str:
        """Of the pod, at the API."""
        return str(apply.get(self.cluster.admin, f"{PODS}/{raw['metadata']['name']}")["status"].get("phase"))

    def containers(self, raw: Raw) -> list[tuple[str, str]]:
        """State and device of each that the pod has had."""
        found = self.kubelet.runtime.containers(raw["metadata"]["uid"])
        return [(each.state, each.options.env.get("NVIDIA_VISIBLE_DEVICES", "")) for each in found]

    def pods(self) -> list[Raw]:
        found: list[Raw] = apply.get(self.cluster.admin, PODS)["items"]
        return found

    def delete_pods(self) -> None:
        """Return when they are gone; containers that cannot be killed end now, those of earlier pods too."""
        for container in self.kubelet.runtime.containers():
            self.kubelet.runtime.release(container.container_id)
        for raw in self.pods():
            with suppress(NotFound):  # it was being deleted
                apply.delete(self.cluster.admin, f"{PODS}/{raw['metadata']['name']}")
        eventually(lambda: not self.pods(), "no pods are left", SECONDS)

    def gpu_message(self) -> str:
        """Of the only GPU, for the newest version of the plan."""
        found = apply.get(self.cluster.admin, f"{PLANS}/{self.name}")
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return ""
        return str(next((gpu.get("message", "") for gpu in status.get("gpus") or ()), ""))

    def visible(self, raw: Raw) -> str:
        """The device that the pod's newest container was given."""
        return self.wait_running(raw).options.env["NVIDIA_VISIBLE_DEVICES"]


def mig_item(*instances: tuple[str, int], index: int = 0) -> Raw:
    """One pinned GPU with these profiles at these starts."""
    return {
        "index": index,
        "mig": {"instances": [{"profile": profile, "start": start} for profile, start in instances]},
    }

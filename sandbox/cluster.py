"""Runs a whole simulated cluster: API server, scheduler, GPU nodes, and the product's real processes.

Takes manifests that were checked, writes a kubeconfig, and runs until `stop`. Controller, agents and device plugins are
processes of their own and run unmodified; only hardware, kubelet, scheduler and API server are stand-ins. Everything is
in one short folder (unix sockets allow 108 bytes) and listens on loopback.
"""

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from kubernetes.client import ApiClient

from cli.hardware import Gpu, gpus_of
from crds.v1alpha1 import names, paths
from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN
from kube import apply, clients
from kube.errors import Conflict, NotFound
from kube.reflector import Reflector
from sandbox.control_plane import ControlPlane, Embedded, Role, write_kubeconfig
from sandbox.held_pods import HeldPods
from sandbox.kubelet.runtime import ContainerRecord
from sandbox.node import SandboxNode
from sandbox.nvidia_plugin.node import CONFIG_MAP, NAMESPACE
from sandbox.objects import ClusterObjects, copy_of
from sandbox.ports import HeldPort
from sandbox.supervisor import Supervisor

CONTROLLER = "controller"
"""Its name among the supervised processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What a person can turn."""

    status_tick_seconds: float = 1.0
    """A kubelet's is 10 s: learning needs no patience."""
    controller: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the controller; without any it plans with those that ship."""


class Cluster:
    """Start with `start(manifests)`, use it through `kubeconfig`, end with `stop`."""

    def __init__(
        self,
        settings: ClusterSettings | None = None,
        *,
        control_plane: ControlPlane | None = None,
        node_type: type[SandboxNode] = SandboxNode,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.directory = Path(tempfile.mkdtemp(prefix="gpuplan-", dir="/tmp"))
        (self.directory / "logs").mkdir()
        self.supervisor = Supervisor(self.directory / "logs")
        self._controller_port = HeldPort()
        self._report = report
        self._plane = control_plane or Embedded()
        self._node_type = node_type
        self._api: ApiClient | None = None
        self._held: HeldPods | None = None
        self._nodes: dict[str, SandboxNode] = {}
        self._nodes_lock = threading.Lock()
        self._machines: dict[tuple[str, tuple[Gpu, ...]], Path] = {}
        self._refused: dict[str, str] = {}
        self._parts: list[Any] = []
        self._stopping = threading.Event()

    @property
    def kubeconfig(self) -> Path:
        """The file to give to kubectl."""
        return self.directory / f"{Role.PERSON}.kubeconfig"

    def _credentials(self, role: Role, node: str = "") -> Path:
        return write_kubeconfig(self._plane, self.directory, role, node)

    @property
    def api(self) -> ApiClient:
        """A client of this cluster."""
        if self._api is None:
            raise RuntimeError("the cluster is not started")
        return self._api

    def start(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Bring everything up and create the objects; what the API server refuses raises RefusedManifestError."""
        self._plane.start()
        self._api = clients.load(str(self._credentials(Role.PERSON)))
        held = self._held = HeldPods(self._api, self._objects.post, report=self._report)
        self._objects.install()
        self._objects.add_namespaces(manifests)
        for manifest in manifests:
            if manifest["kind"] == "Pod" and manifest["spec"].get("nodeName"):
                held.add(copy_of(manifest))
            else:
                self.create(manifest)
        self._start_part(self._node_watch())
        self._start_part(held)
        if held.bodies():
            threading.Thread(target=self._decide_after, args=(held,), name="decide-later", daemon=True).start()
        else:
            self._start_deciding()

    def stop(self) -> None:
        """End every part and remove the folder."""
        with self._nodes_lock:
            self._stopping.set()
        self.supervisor.stop()
        for part in reversed(self._parts):
            part.stop()
        with self._nodes_lock:
            nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            node.stop()
        self._plane.stop()
        self._controller_port.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _decide_after(self, held: HeldPods) -> None:
        """Pods that name their node hold their slices before any is allocated or repartitioned."""
        held.placed.wait()
        with self._nodes_lock:
            if not self._stopping.is_set():
                self._start_deciding()

    def _start_deciding(self) -> None:
        self._plane.begin_scheduling()
        self._start_controller()

    def _start_part(self, part: Any) -> None:
        part.start()
        self._parts.append(part)

    def create(self, manifest: Mapping[str, Any]) -> None:
        """POST one object; what the API server refuses raises RefusedManifestError."""
        self._objects.create(manifest)

    @property
    def _objects(self) -> ClusterObjects:
        return ClusterObjects(self.api, report=self._report, stopping=self._stopping)

    def pods(self) -> list[dict[str, Any]]:
        """Every pod but gpuplan's own, those that still wait for their node's plugin included."""
        # Held ones first: one that is created in between is there twice for a moment, not missing.
        held = self._held.bodies() if self._held else []
        found = apply.get(self.api, paths.PODS)["items"]
        return [*(pod for pod in found if pod["metadata"]["namespace"] != names.NAMESPACE), *held]

    def containers(self) -> list[ContainerRecord]:
        """Those of every node but gpuplan's own, ended ones included."""
        found = (one for node in self.nodes.values() for one in node.runtime.containers())
        return [one for one in found if one.request.namespace != names.NAMESPACE]

    def plans(self) -> list[dict[str, Any]]:
        """Every GPUPartitionPlan, with apiVersion and kind."""
        kind = {"apiVersion": names.API_VERSION, "kind": names.KIND}
        return [{**kind, **item} for item in apply.get(self.api, paths.PLANS)["items"]]

    def decisions(self) -> dict[str, Any] | None:
        """The controller's account of its last finished pass; None while it has none or cannot be reached."""
        try:
            with urlopen(f"http://127.0.0.1:{self._controller_port.number}/decisions", timeout=5) as answer:
                found = json.load(answer)
        except (URLError, OSError, ValueError):
            return None
        return found if found.get("pass") else None

    def troubles(self) -> list[str]:
        """What the logs say of processes that ended by themselves, and of a controller that has finished no pass."""
        silent = {CONTROLLER} if self.decisions() is None else set()
        return [
            f"{name} ended by itself {child.restarts} times; its log ends:\n{child.tail()}"
            for name, child in sorted(self.supervisor.children.items())
            if child.restarts or name in silent
        ]

    def _node_watch(self) -> Reflector[dict[str, Any]]:
        return Reflector(self.api, paths.NODES, project=lambda node: node, on_change=self._node_changed)

    def _node_changed(self, key: tuple[str, str], _old: object, new: dict[str, Any] | None) -> None:
        _, name = key
        if new is None:
            self._remove_node(name)
        elif name not in self.nodes:
            self._add_node(new)

    def _remove_node(self, name: str) -> None:
        self._refused.pop(name, None)
        with self._nodes_lock:
            gone = self._nodes.pop(name, None)
        if gone:
            gone.stop()
        self._collect_pods(name)

    def _collect_pods(self, node: str) -> None:
        """Delete what was bound to a node that is gone, as the pod garbage collector does: no kubelet ends it."""
        for pod in apply.get(self.api, paths.PODS, query={"fieldSelector": f"spec.nodeName={node}"})["items"]:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            with contextlib.suppress(NotFound, Conflict):
                apply.delete(self.api, path, uid=metadata["uid"], grace_seconds=0)

    def _add_node(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        gpus = gpus_of(manifest)
        if isinstance(gpus, str):
            if self._refused.get(name) != gpus:
                self._report(f"node {name} is left without hardware until it is right: {gpus}")
            self._refused[name] = gpus
            return
        # The same node with the same cards is the same machine, also when it left the cluster in between.
        root = self._machines.setdefault((name, gpus), self.directory / f"n{len(self._machines)}")
        kubelet = clients.load(str(self._credentials(Role.KUBELET, name)))
        agent = self._credentials(Role.AGENT, name) if gpus else self.kubeconfig
        with self._nodes_lock:
            node = self._node_type(
                name=name,
                gpus=gpus,
                root=root,
                kubeconfig=agent,
                api=kubelet,
                supervisor=self.supervisor,
                status_tick_seconds=self.settings.status_tick_seconds,
                nvidia=self.api if gpus and manifest["metadata"]["labels"].get(DEVICE_PLUGIN) == "true" else None,
            )
            self._nodes[name] = node
        node.start()

    @property
    def nodes(self) -> Mapping[str, SandboxNode]:
        """The simulated nodes by name."""
        with self._nodes_lock:
            return dict(self._nodes)

    @property
    def nodes_without_agent(self) -> frozenset[str]:
        """Nodes without GPUs."""
        return frozenset(name for name, node in self.nodes.items() if not node.has_gpus)

    def _start_controller(self) -> None:
        config = self.directory / "controller.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "metricsPort": self._controller_port.number,
                    "nvidiaConfig": {"name": CONFIG_MAP, "namespace": NAMESPACE},
                    "leaderElection": {
                        "leaseDurationSeconds": 4,
                        "renewDeadlineSeconds": 3,
                        "retryPeriodSeconds": 0.5,
                    },
                    **self.settings.controller,
                }
            )
        )
        kubeconfig = self._credentials(Role.CONTROLLER)
        self.supervisor.add(CONTROLLER, "controller", ["--config", str(config), "--kubeconfig", str(kubeconfig)])

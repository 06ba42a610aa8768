"""A whole simulated cluster: API server, scheduler, GPU nodes, and the product's real processes on top.

In: manifests that were checked. Out: a kubeconfig, and parts that run until `stop`. Controller, agents and device
plugins are processes of their own and run unmodified; only hardware, kubelet, scheduler and API server are
stand-ins. Everything lies in one short folder (unix sockets allow 108 bytes) and listens on loopback.
"""

import contextlib
import json
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from kubernetes.client import ApiClient

from crds.definition import definition
from crds.v1alpha1 import names
from kube import apply, clients
from kube.errors import ApiError, Conflict, NotFound
from kube.reflector import Reflector
from sandbox.apiserver import ApiServer
from sandbox.hardware import Gpu, Problem, gpus_of
from sandbox.held_pods import HeldPods
from sandbox.node import SandboxNode
from sandbox.scheduler import Scheduler
from sandbox.supervisor import Supervisor

PLANS = f"/apis/{names.API_VERSION}/{names.PLURAL}"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "GPUPartitionPlan": PLANS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What a person can turn; shorter than in a real cluster, so that learning needs no patience."""

    status_tick_seconds: float = 1.0
    batch_timeout_seconds: float = 5.0
    batch_idle_seconds: float = 1.0


class RefusedManifestError(Exception):
    """The API server does not take this object; the text is its own."""

    def __init__(self, body: Mapping[str, Any], error: ApiError) -> None:
        super().__init__(error.message)
        self.body = body


class Cluster:
    """Start with `start(manifests)`, look at it through `kubeconfig`, end with `stop`."""

    def __init__(
        self, settings: ClusterSettings | None = None, *, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.directory = Path(tempfile.mkdtemp(prefix="gpuplan-", dir="/tmp"))
        (self.directory / "logs").mkdir()
        self.supervisor = Supervisor(self.directory / "logs")
        self.controller_port = _free_port()
        self._report = report
        self._server = ApiServer()
        self._api: ApiClient | None = None
        self._held: HeldPods | None = None
        self._nodes: dict[str, SandboxNode] = {}
        self._nodes_lock = threading.Lock()
        self._machines: dict[tuple[str, tuple[Gpu, ...]], Path] = {}
        self._refused: dict[str, Problem] = {}
        self._parts: list[Any] = []
        self._stopping = threading.Event()

    # ------------------------------------------------------------------------------------------ life

    @property
    def kubeconfig(self) -> Path:
        """The file to give to kubectl."""
        return self.directory / "kubeconfig"

    @property
    def api(self) -> ApiClient:
        """A client of this cluster."""
        if self._api is None:
            raise RuntimeError("the cluster is not started")
        return self._api

    def start(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Bring everything up and create the objects; what the API server refuses raises RefusedManifestError."""
        self._server.start()
        self._api = clients.for_url(self._server.url)
        held = self._held = HeldPods(self._api, self._post, report=self._report)
        self.kubeconfig.write_text(self._server.kubeconfig())
        self._install()
        self._add_namespaces(manifests)
        for manifest in manifests:
            if manifest["kind"] == "Pod" and manifest["spec"].get("nodeName"):
                held.add(_copy(manifest))
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
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _decide_after(self, held: HeldPods) -> None:
        """Pods that name their node hold their slices before anybody gives or takes one."""
        held.placed.wait()
        with self._nodes_lock:
            if not self._stopping.is_set():
                self._start_deciding()

    def _start_deciding(self) -> None:
        self._start_part(Scheduler(clients.for_url(self._server.url)))
        self._start_controller()

    def _start_part(self, part: Any) -> None:
        part.start()
        self._parts.append(part)

    # --------------------------------------------------------------------------------------- objects

    def create(self, manifest: Mapping[str, Any]) -> None:
        """POST one object."""
        self._post(_copy(manifest))

    def _post(self, body: dict[str, Any]) -> bool:
        """False: a namespace that is there already."""
        namespace = body["metadata"].setdefault("namespace", "default") if "{" in COLLECTIONS[body["kind"]] else ""
        try:
            apply.create(self.api, COLLECTIONS[body["kind"]].format(namespace=namespace), body)
        except ApiError as error:
            if isinstance(error, Conflict) and body["kind"] == "Namespace":
                return False
            raise RefusedManifestError(body, error) from error
        return True

    def _add_namespaces(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Pods of a real cluster come without their Namespace: make those that no file declares."""
        declared = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Namespace"}
        used = {manifest["metadata"].get("namespace", "default") for manifest in manifests}
        for name in sorted(used - declared):
            if self._post({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}):
                self._report(f"namespace {name} is in none of the files and was created")

    def _install(self) -> None:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        apply.create(self.api, path, definition())
        self._post({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}})
        deadline = time.monotonic() + 10
        while not _established(apply.get(self.api, f"{path}/{names.PLURAL}.{names.GROUP}")):
            if time.monotonic() > deadline:
                raise RuntimeError("the API server did not establish the CRD")
            self._stopping.wait(0.05)

    def pods(self) -> list[dict[str, Any]]:
        """Every pod, those that still wait for their node's plugin included."""
        # Held ones first: one that is created in between is there twice for a moment, not missing.
        held = self._held.bodies() if self._held else []
        return [*apply.get(self.api, "/api/v1/pods")["items"], *held]

    def plans(self) -> list[dict[str, Any]]:
        """Every GPUPartitionPlan, with apiVersion and kind."""
        kind = {"apiVersion": names.API_VERSION, "kind": names.KIND}
        return [{**kind, **item} for item in apply.get(self.api, PLANS)["items"]]

    def decisions(self) -> dict[str, Any] | None:
        """The controller's account of its last finished pass; None while it has none or cannot be reached."""
        try:
            with urlopen(f"http://127.0.0.1:{self.controller_port}/decisions", timeout=5) as answer:
                found = json.load(answer)
        except (URLError, OSError, ValueError):
            return None
        return found if found.get("pass") else None

    # ----------------------------------------------------------------------------------------- parts

    def _node_watch(self) -> Reflector[dict[str, Any]]:
        return Reflector(self.api, "/api/v1/nodes", project=lambda node: node, on_change=self._node_changed)

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
        for pod in apply.get(self.api, "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node}"})["items"]:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            with contextlib.suppress(NotFound, Conflict):
                apply.delete(self.api, path, uid=metadata["uid"], grace_seconds=0)

    def _add_node(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        gpus = gpus_of(manifest)
        if isinstance(gpus, Problem):
            if self._refused.get(name) != gpus:
                self._report(f"node {name} is left without hardware until it is right: {gpus.field}: {gpus.message}")
            self._refused[name] = gpus
            return
        # The same node with the same cards is the same machine, also when it left the cluster in between.
        root = self._machines.setdefault((name, gpus), self.directory / f"n{len(self._machines)}")
        with self._nodes_lock:
            node = SandboxNode(
                name=name,
                gpus=gpus,
                root=root,
                kubeconfig=self.kubeconfig,
                api=clients.for_url(self._server.url),
                supervisor=self.supervisor,
                status_tick_seconds=self.settings.status_tick_seconds,
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
                    "batchWindowTimeoutSeconds": self.settings.batch_timeout_seconds,
                    "batchWindowIdleSeconds": self.settings.batch_idle_seconds,
                    "metricsPort": self.controller_port,
                    "leaderElection": {
                        "leaseDurationSeconds": 4,
                        "renewDeadlineSeconds": 3,
                        "retryPeriodSeconds": 0.5,
                    },
                }
            )
        )
        self.supervisor.add("controller", "controller", ["--config", str(config), "--kubeconfig", str(self.kubeconfig)])


def _copy(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(manifest)))


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions", [])
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

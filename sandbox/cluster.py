"""A whole simulated cluster: API server, scheduler, GPU nodes, and the product's real processes on top.

In: manifests that were checked. Out: a kubeconfig, and parts that run until `stop`. Controller, agents and device
plugins are processes of their own and run unmodified; only hardware, kubelet, scheduler and API server are
stand-ins. Everything lies in one short folder (unix sockets allow 108 bytes) and listens on loopback.
"""

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
from sandbox.hardware import Problem, gpus_of
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
BIND_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What a person can turn; shorter than in a real cluster, so that learning needs no patience."""

    status_tick_seconds: float = 1.0
    batch_timeout_seconds: float = 5.0
    batch_idle_seconds: float = 1.0


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
        self._nodes: dict[str, SandboxNode] = {}
        self._nodes_lock = threading.Lock()
        self._held: list[dict[str, Any]] = []
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
        """Bring everything up and create the objects; a refusal by the API server raises kube.errors.ApiError."""
        self._server.start()
        self._api = clients.for_url(self._server.url)
        self.kubeconfig.write_text(self._server.kubeconfig())
        self._install()
        for manifest in manifests:
            self.create(manifest)
        self._start_part(Scheduler(clients.for_url(self._server.url)))
        self._start_part(self._node_watch())
        self._start_controller()
        threading.Thread(target=self._bind_held, name="bind-held", daemon=True).start()

    def stop(self) -> None:
        """End every part and remove the folder."""
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

    def _start_part(self, part: Any) -> None:
        part.start()
        self._parts.append(part)

    # --------------------------------------------------------------------------------------- objects

    def create(self, manifest: Mapping[str, Any]) -> None:
        """POST one object. A pod that names its node waits until that node offers what it asks for."""
        body = json.loads(json.dumps(manifest))
        if body["kind"] == "Node":
            _fill_capacity(body)
        if body["kind"] == "Pod" and body["spec"].get("nodeName"):
            self._held.append(body)
            return
        self._post(body)

    def _post(self, body: dict[str, Any]) -> None:
        namespace = body["metadata"].setdefault("namespace", "default") if "{" in COLLECTIONS[body["kind"]] else ""
        try:
            apply.create(self.api, COLLECTIONS[body["kind"]].format(namespace=namespace), body)
        except Conflict:
            if body["kind"] != "Namespace":
                raise

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
        held = [{**pod, "metadata": {"namespace": "default", "uid": "", **pod["metadata"]}} for pod in list(self._held)]
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

    def _node_watch(self) -> Reflector:
        return Reflector(self.api, "/api/v1/nodes", project=lambda node: node, on_change=self._node_changed)

    def _node_changed(self, _key: object, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if old is None and new is not None:
            self._add_node(new)
        elif new is None and old is not None:
            with self._nodes_lock:
                gone = self._nodes.pop(old["metadata"]["name"], None)
            if gone:
                gone.stop()

    def _add_node(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        gpus = gpus_of(manifest)
        if isinstance(gpus, Problem):
            self._report(f"node {name} is left without hardware: {gpus.field}: {gpus.message}")
            return
        with self._nodes_lock:
            node = SandboxNode(
                name=name,
                gpus=gpus,
                root=self.directory / f"n{len(self._nodes)}",
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

    def _bind_held(self) -> None:
        """Create the pods that name a node, each once its node offers what it asks for."""
        deadline = time.monotonic() + BIND_WAIT_SECONDS
        while self._held and not self._stopping.wait(0.1):
            for pod in list(self._held):
                late = time.monotonic() > deadline
                if late or self._offers(pod):
                    if late:
                        self._report(f"pod {pod['metadata']['name']}: its node does not offer what it asks for")
                    try:
                        self._post(pod)
                    except ApiError as error:
                        self._report(f"pod {pod['metadata']['name']}: {error}")
                    self._held.remove(pod)

    def _offers(self, pod: Mapping[str, Any]) -> bool:
        wanted: dict[str, int] = {}
        for container in pod["spec"]["containers"]:
            for resource, amount in (container.get("resources", {}).get("limits") or {}).items():
                if "/" in resource:
                    wanted[resource] = wanted.get(resource, 0) + int(amount)
        try:
            node = apply.get(self.api, f"/api/v1/nodes/{pod['spec']['nodeName']}")
        except (NotFound, ApiError):
            return False
        allocatable = node.get("status", {}).get("allocatable", {})
        return all(int(allocatable.get(resource, 0)) >= amount for resource, amount in wanted.items())


def _fill_capacity(node: dict[str, Any]) -> None:
    """Give a node that says nothing of itself the size of an ordinary GPU server."""
    status = node.setdefault("status", {})
    capacity = status.setdefault("capacity", dict(status.get("allocatable") or {}))
    for resource, amount in (("cpu", "96"), ("memory", "1Ti"), ("pods", "110")):
        capacity.setdefault(resource, amount)
    status["allocatable"] = {**capacity, **(status.get("allocatable") or {})}


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions", [])
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

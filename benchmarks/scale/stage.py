"""The cluster of a run: a real control plane, simulated nodes in few processes, and the real controller.

Takes programs and sizes, starts a cluster and waits until its plans are all Ready, before the first pod. Each part has
the rights that deploy/ gives: the controller its service account's token, each agent one that is bound to a pod on its
node. Only kubelets and the load come as administrators. Everything ends with `stop`, or with this process.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml
from kubernetes.client import ApiClient

from benchmarks.scale.workload import NAMESPACE, node_names, node_object
from crds.v1alpha1 import names
from kube import apply, clients
from sandbox.control_plane import Role
from sandbox.objects import ClusterObjects
from sandbox.ports import HeldPort
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.part import Part
from tests.e2e.rig.controlplane.plane import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.e2e.rig.controlplane.tenants import AGENT, MANIFESTS, RealServers

WRITERS = 8
CONTROLLER = "controller"
TOKEN_SECONDS = 24 * 3600
START_SECONDS = 300.0
ACCOUNTS_AND_RIGHTS = "3"
"""Manifests up to the files that begin with this: the programs themselves run outside the cluster."""
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Metadata", "omitStages": ["RequestReceived", "ResponseStarted"]}],
}


AUDIT_LOG_MB = 100_000
"""The log is one file: the server would begin a new one each 100 MB, and all requests are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size of a run."""

    nodes: int
    pods: int
    gpus: int
    per_second: float
    seed: int
    agent_processes: int
    settings: Mapping[str, float]
    """The controller's, in addition to those of deploy/."""
    agent_settings: Mapping[str, float | bool]
    """The agents', in addition to the defaults."""


class StageError(Exception):
    """The cluster did not come up in time."""


class Stage:
    """`start`, measure, `stop`."""

    def __init__(self, programs: Binaries, sizes: Sizes, directory: Path, *, report: Callable[[str], None]) -> None:
        self._sizes, self._directory, self._report = sizes, directory, report
        self._metrics_port = HeldPort()
        self.audit_log = directory / "audit.log"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        audit = [
            f"--audit-policy-file={directory / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
            f"--audit-log-maxsize={AUDIT_LOG_MB}",
        ]
        extra = {
            # Nodes are ready from the start: no controller need take a taint off each of them.
            API_SERVER: [*audit, "--disable-admission-plugins=TaintNodesByCondition"],
            ETCD: ["--quota-backend-bytes=8589934592"],
            # The simulated kubelets send no heartbeats of their own.
            CONTROLLER_MANAGER: ["--node-monitor-grace-period=2h", "--controllers=*,-ttl-controller"],
        }
        self.plane = RealControlPlane(programs, directory=directory / "plane", extra=extra)
        self._servers = RealServers(self.plane, _rights(directory / "manifests"))
        self._parts: list[Part] = []

    def start(self) -> None:
        """Up to the controller and the agents; their plans are Ready some time later."""
        self._servers.start()
        self._admin = self.client("scale-load")
        objects = ClusterObjects(self._admin, report=self._report, stopping=threading.Event())
        objects.install()
        objects.post({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        nodes = node_names(self._sizes.nodes)
        self._report(f"{len(nodes)} nodes and a token for each agent")
        self._each(nodes, lambda name: apply.create(self._admin, "/api/v1/nodes", node_object(name, self._sizes.gpus)))
        tokens = dict(zip(nodes, self._each(nodes, self._agent_token), strict=True))
        self._start_agents(tokens)
        self._start_controller()

    def stop(self) -> list[str]:
        """End everything; returns the last line of each agents' process."""
        for part in reversed(self._parts):
            part.stop()
        self._servers.stop()
        self._metrics_port.close()
        return [part.tail(1) for part in self._parts if part.name != CONTROLLER]

    def client(self, user: str) -> ApiClient:
        """An administrator of that name."""
        path = self._write(f"{user}.kubeconfig", self.plane.kubeconfig_of(user, ("system:masters",)))
        return clients.load(str(path), user_agent=user)

    def pids(self) -> dict[str, int | None]:
        """Of every process."""
        found = {part.name: part.pid for part in self._parts}
        return found | {name: part.pid for name, part in self.plane.parts.items()}

    def controller_page(self, path: str) -> str:
        """A page of the controller's own server."""
        with urlopen(f"http://127.0.0.1:{self._metrics_port.number}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    def until(self, holds: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for something; raises StageError."""
        deadline = time.monotonic() + seconds
        while not holds():
            gone = [name for name, pid in self.pids().items() if pid is None]
            if gone or time.monotonic() > deadline:
                why = f"{', '.join(gone)} ended" if gone else f"not in {seconds:.0f} s"
                raise StageError(f"{what}: {why}")
            time.sleep(0.5)

    def _each(self, items: Iterable[str], act: Callable[[str], Any]) -> list[Any]:
        with ThreadPoolExecutor(WRITERS) as pool:
            return list(pool.map(act, items))

    def _agent_token(self, node: str) -> str:
        """As the kubelet fetches it for the agent's pod."""
        pods = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
        container = {"name": "agent", "image": "example.invalid/agent"}
        spec = {"nodeName": node, "serviceAccountName": AGENT, "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{AGENT}-{node}"}, "spec": spec}
        pod = apply.create(self._admin, pods, body)["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound},
        }
        path = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/{AGENT}/token"
        return str(apply.create(self._admin, path, request)["status"]["token"])

    def _start_agents(self, tokens: Mapping[str, str]) -> None:
        agents = self._write("agents.kubeconfig", self.plane.kubeconfig_with(""))
        self.client("scale-kubelets")
        count = self._sizes.agent_processes
        for number in range(count):
            order = {
                "agentKubeconfig": str(agents),
                "kubeletKubeconfig": str(self._directory / "scale-kubelets.kubeconfig"),
                "gpus": self._sizes.gpus,
                "seed": self._sizes.seed,
                "settings": dict(self._sizes.agent_settings),
                "tokens": dict(sorted(tokens.items())[number::count]),
            }
            path = self._write(f"agents-{number}.json", json.dumps(order))
            self._run(f"agents {number}", "benchmarks.scale.agents", str(path))

    def _start_controller(self) -> None:
        config = {**_shipped(), **self._sizes.settings, "metricsAddress": "127.0.0.1"}
        path = self._write("controller.yaml", yaml.safe_dump({**config, "metricsPort": self._metrics_port.number}))
        kubeconfig = self._write("controller.kubeconfig", self._servers.kubeconfig(Role.CONTROLLER))
        arguments = ("--config", str(path), "--kubeconfig", str(kubeconfig))
        self._run(CONTROLLER, "controller", *arguments)

    def _run(self, name: str, module: str, *arguments: str) -> None:
        log = self._directory / f"{name.replace(' ', '-')}.log"
        part = Part(name, [sys.executable, "-m", module, *arguments], log=log, ready=lambda: True)
        self._parts.append(part)
        part.start()

    def _write(self, name: str, text: str) -> Path:
        path = self._directory / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path


def _rights(folder: Path) -> Path:
    """Links to what deploy/ ships, without the programs."""
    folder.mkdir()
    shipped = [path for path in sorted(MANIFESTS.glob("*.yaml")) if path.name[0] <= ACCOUNTS_AND_RIGHTS]
    for path in shipped:
        (folder / path.name).symlink_to(path)
    return folder


def _shipped() -> dict[str, Any]:
    """The controller's settings as deploy/ has them."""
    for document in yaml.safe_load_all((MANIFESTS / "40-controller.yaml").read_text()):
        if document["kind"] == "ConfigMap":
            return dict(yaml.safe_load(document["data"]["config.yaml"]))
    raise LookupError("deploy/ ships no settings of the controller")

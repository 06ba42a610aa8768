"""The port that is open in the pod network, against the real control plane: who may read `/decisions`, and a flood.

The account of the manifests asks the API server about other people's tokens. The flood is a controller of the sandbox
on that control plane: for a minute a thousand connections send a byte now and then, and as many whole requests as one
client gets through; each probe must be answered within the second that a kubelet waits, and an ordinary pod runs.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from controller.wiring import READS_ALL_PODS
from kube import apply
from kube.access import Access
from kube.serve import Page, Private, Server
from sandbox.cluster import Cluster
from tests.e2e import fleet
from tests.e2e.real_cluster import RealCluster
from tests.e2e.test_scenarios import SETTLE_SECONDS, cluster as scenario, said, servers, start, starts  # noqa: F401
from tests.sandbox.test_crashes import running
from tests.waiting import eventually

FLOOD_SECONDS = float(os.environ.get("GPUPLAN_FLOOD_SECONDS", "60"))
FLOODER = "127.0.0.2"
CONNECTIONS = 1000
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
READER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


def account(cluster: RealCluster, name: str) -> str:
    """A service account of somebody else; its token."""
    apply.create(cluster.admin, ACCOUNTS, {"metadata": {"name": name}})
    made = apply.create(cluster.admin, f"{ACCOUNTS}/{name}/token", {"spec": {"expirationSeconds": 3600}})
    return str(made["status"]["token"])


def bind(cluster: RealCluster, kind: str, place: str, name: str) -> None:
    """The right to list pods: everywhere, or in one namespace."""
    role = {"metadata": {"name": name}, "rules": [READER]}
    apply.create(cluster.admin, f"{RBAC}/{place}{kind.lower()}s", role)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    apply.create(cluster.admin, f"{RBAC}/{place}{kind.lower()}bindings", binding)


@pytest.fixture
def port(cluster: RealCluster) -> Iterator[int]:
    access = Access(fleet.controller(cluster), READS_ALL_PODS, "list pods in all namespaces")
    server = Server("127.0.0.1", 0, {"/decisions": Private(lambda: Page(body=b"names"), access.refusal)})
    server.start()
    yield server.port
    server.stop()


def answer(port: int, path: str, token: str = "", seconds: float = 10) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=seconds) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_who_may_list_pods_everywhere_reads_the_decisions(cluster: RealCluster, port: int) -> None:
    reader, local, nobody = (account(cluster, name) for name in ("decisions-reader", "one-namespace", "nobody"))
    bind(cluster, "ClusterRole", "", "decisions-reader")
    bind(cluster, "Role", "namespaces/default/", "one-namespace")
    eventually(lambda: answer(port, "/decisions", reader) == (200, "names"), "the right counts")
    for token in (local, nobody):
        code, words = answer(port, "/decisions", token)
        assert (code, "may not list pods in all namespaces" in words) == (403, True)
    assert answer(port, "/decisions", reader[:-4] + "AAAA")[0] == 401
    assert answer(port, "/decisions")[0] == 401


class Flood:
    """Use as a context."""

    def __init__(self, port: int) -> None:
        self._port, self._over = port, threading.Event()
        self._threads = [threading.Thread(target=act) for act in (self._crawl, self._hurry)]
        self.opened = self.hurried = 0

    def __enter__(self) -> "Flood":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 5, source_address=(FLOODER, 0))

    def _crawl(self) -> None:
        clients: list[socket.socket] = []
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                while len(clients) < CONNECTIONS and not self._over.is_set():
                    clients.append(self._connect())
                    self.opened += 1
            for client in clients:
                try:
                    client.sendall(b"G")
                except OSError:
                    clients.remove(client)
                    client.close()
        for client in clients:
            client.close()

    def _hurry(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError), self._connect() as client:
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                while client.recv(1 << 16):
                    pass
                self.hurried += 1


def test_probes_are_answered_while_the_port_is_flooded(scenario: Cluster) -> None:  # noqa: F811 - a fixture
    wanted = start(scenario, "mig")
    ports = [yaml.safe_load((scenario.directory / "controller.yaml").read_text())["metricsPort"]]
    ports += [
        yaml.safe_load(node.agent_settings.read_text())["metricsPort"] for node in list(scenario.nodes.values())[:1]
    ]
    began, probes = time.monotonic(), 0
    with Flood(ports[0]) as first, Flood(ports[1]) as second:
        eventually(lambda: min(first.opened, second.opened) > CONNECTIONS, "the flood")
        while time.monotonic() - began < FLOOD_SECONDS:
            for port in ports:
                for path in ("/healthz", "/readyz"):
                    assert answer(port, path, seconds=1)[0] == 200, (port, path)
                    probes += 1
            time.sleep(0.5)
        eventually(lambda: running(scenario) == wanted, "all pods run", SETTLE_SECONDS)
    print(f"{probes} probes answered; {first.opened} and {second.opened} slow connections, "
          f"{first.hurried} and {second.hurried} scrapes of the flooder")  # fmt: skip
    assert not any(child.restarts for child in scenario.supervisor.children.values())

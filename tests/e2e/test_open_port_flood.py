"""A flood of the port that is open in the pod network, of a controller and an agent on the real control plane.

For a minute a thousand connections send a byte now and then, and as many whole requests as one client gets through come
with them; each probe must be answered within the second that a kubelet waits, and ordinary pods run.
"""

import contextlib
import os
import socket
import threading
import time

import yaml

from sandbox.cluster import Cluster
from tests.e2e.test_open_port import answer
from tests.e2e.test_scenarios import SETTLE_SECONDS, cluster, said, servers, start, starts
from tests.sandbox.test_crashes import running
from tests.waiting import eventually

FLOOD_SECONDS = float(os.environ.get("GPUPLAN_FLOOD_SECONDS", "60"))
FLOODER = "127.0.0.2"
CONNECTIONS = 1000
__all__ = ["cluster", "said", "servers", "starts"]  # fixtures


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


def test_probes_are_answered_while_the_port_is_flooded(cluster: Cluster) -> None:
    wanted = start(cluster, "mig")
    ports = [yaml.safe_load((cluster.directory / "controller.yaml").read_text())["metricsPort"]]
    ports += [
        yaml.safe_load(node.agent_settings.read_text())["metricsPort"] for node in list(cluster.nodes.values())[:1]
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
        eventually(lambda: running(cluster) == wanted, "all pods run", SETTLE_SECONDS)
    print(f"{probes} probes answered; {first.opened} and {second.opened} slow connections, "
          f"{first.hurried} and {second.hurried} scrapes of the flooder")  # fmt: skip
    assert not any(child.restarts for child in cluster.supervisor.children.values())

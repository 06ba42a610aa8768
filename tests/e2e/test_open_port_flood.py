"""A flood of the port that is open in the pod network, of a controller and an agent on the real control plane.

For a minute a thousand connections send a byte now and then, and as many whole requests as one client gets through come
with them. Probes are judged as a kubelet judges them: each has a second, and a container is restarted when several in a
row have failed. Meanwhile ordinary pods run.
"""

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections import Counter

import yaml

from sandbox.cluster import Cluster
from tests.e2e.test_open_port import answer
from tests.e2e.test_scenarios import SETTLE_SECONDS, cluster, said, servers, start, starts
from tests.sandbox.test_crashes import running
from tests.waiting import eventually

FLOOD_SECONDS = float(os.environ.get("GPUPLAN_FLOOD_SECONDS", "60"))
FLOODER = "127.0.0.2"
CONNECTIONS = 1000
FAILURE_THRESHOLD = 3
"""The default of Kubernetes, and the lowest in deploy/."""
SPAWN = multiprocessing.get_context("spawn")
__all__ = ["cluster", "said", "servers", "starts"]  # fixtures


class Flood:
    """Use as a context. A process of its own: within this one, the probes would wait for the flooder."""

    def __init__(self, port: int) -> None:
        self._port, self._over = port, SPAWN.Event()
        self._opened, self._hurried = SPAWN.Value("q", 0), SPAWN.Value("q", 0)
        self._process = SPAWN.Process(target=self._run, daemon=True)

    def __enter__(self) -> "Flood":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._process.join()

    @property
    def opened(self) -> int:
        """Slow connections."""
        return int(self._opened.value)

    @property
    def hurried(self) -> int:
        """Whole requests that were answered."""
        return int(self._hurried.value)

    def _run(self) -> None:
        hurrying = threading.Thread(target=self._hurry)
        hurrying.start()
        self._crawl()
        hurrying.join()

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 5, source_address=(FLOODER, 0))

    def _crawl(self) -> None:
        clients: list[socket.socket] = []
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                while len(clients) < CONNECTIONS and not self._over.is_set():
                    clients.append(self._connect())
                    self._opened.value += 1
            for client in clients[:]:
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
                self._hurried.value += 1


class Kubelet:
    """Sends probes, and counts those of each that have failed in a row."""

    def __init__(self) -> None:
        self.answered = self.missed = 0
        self._in_a_row: Counter[tuple[int, str]] = Counter()

    def probe(self, port: int, path: str) -> None:
        try:
            passed = answer(port, path, seconds=1)[0] == 200
        except OSError:
            passed = False
        self.answered, self.missed = self.answered + passed, self.missed + (not passed)
        self._in_a_row[port, path] = 0 if passed else self._in_a_row[port, path] + 1
        assert self._in_a_row[port, path] < FAILURE_THRESHOLD, (port, path)


def test_probes_are_answered_while_the_port_is_flooded(cluster: Cluster) -> None:
    wanted = start(cluster, "mig")
    ports = [yaml.safe_load((cluster.directory / "controller.yaml").read_text())["metricsPort"]]
    ports += [
        yaml.safe_load(node.agent_settings.read_text())["metricsPort"] for node in list(cluster.nodes.values())[:1]
    ]
    kubelet = Kubelet()
    with Flood(ports[0]) as first, Flood(ports[1]) as second:
        eventually(lambda: min(first.opened, second.opened) > CONNECTIONS, "the flood", SETTLE_SECONDS)
        began = time.monotonic()
        while time.monotonic() - began < FLOOD_SECONDS:
            for port in ports:
                for path in ("/healthz", "/readyz"):
                    kubelet.probe(port, path)
            time.sleep(0.5)
        eventually(lambda: running(cluster) == wanted, "all pods run", SETTLE_SECONDS)
    print(f"{kubelet.answered} probes answered, {kubelet.missed} missed; {first.opened} and {second.opened} slow "
          f"connections, {first.hurried} and {second.hurried} scrapes of the flooder")  # fmt: skip
    assert not any(child.restarts for child in cluster.supervisor.children.values())

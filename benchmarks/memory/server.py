"""The least of an API server: lists in pages, watches that send every object once more on request.

Runs in a process of its own, so that what it needs does not count. Holds no objects; another controller always has the
Lease, so that the measured one never writes. Speaks HTTP on 127.0.0.1 only.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.memory.objects import Json, Sizes, collections
from crds.v1alpha1 import paths
from crds.v1alpha1.names import CONTROLLER_LEASE, NAMESPACE
from kube.leases import lease_path
from kube.timestamps import micro_time

_MOST_PER_PAGE = 500
_QUIET_SECONDS = 3600.0


def serve(port: Connection, again: Event, sizes: Sizes) -> None:
    """Serve until the process is ended; the port goes out first. `again` sends all pods once more, as modified."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.again, server.served = again, collections(sizes)
    port.send(server.server_address[1])
    server.serve_forever()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    again: Event
    served: dict[str, tuple[int, Callable[[int], Json]]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """A list, a watch, or the Lease."""
        where = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(where.query).items()}
        if where.path == lease_path(NAMESPACE, CONTROLLER_LEASE):
            self._answer(_lease_of_another())
        elif query.get("watch"):
            self._watch(where.path)
        else:
            self._answer(self._page(where.path, query))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _page(self, path: str, query: Mapping[str, str]) -> Json:
        count, make = self.server.served.get(path, (0, lambda _number: {}))
        first = int(query.get("continue", 0))
        end = min(first + int(query.get("limit", _MOST_PER_PAGE)), count)
        more = {"continue": str(end)} if end < count else {}
        metadata = {"resourceVersion": "1", **more}
        return {"kind": "List", "metadata": metadata, "items": [make(number) for number in range(first, end)]}

    def _answer(self, body: Json) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _watch(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in self._pods_again() if path == paths.PODS else ():
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            while True:
                time.sleep(_QUIET_SECONDS)
        except OSError:
            self.close_connection = True

    def _pods_again(self) -> Iterator[bytes]:
        self.server.again.wait()
        count, make = self.server.served[paths.PODS]
        for number in range(count):
            body = make(number)
            body["metadata"]["resourceVersion"] = "2"
            body["metadata"]["labels"]["seen"] = "again"
            yield json.dumps({"type": "MODIFIED", "object": body}).encode() + b"\n"


def _lease_of_another() -> Json:
    spec = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 15,
        "renewTime": micro_time(),
        "acquireTime": micro_time(),
    }
    metadata = {"name": CONTROLLER_LEASE, "namespace": NAMESPACE, "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

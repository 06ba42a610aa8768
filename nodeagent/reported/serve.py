"""HTTP for Prometheus and probes: /metrics, /healthz and /readyz.

In go a registry and two functions that list what is wrong, out come the pages, each request on a thread of its own.
Read only: there is no path that changes anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

log = logging.getLogger(__name__)
CLIENT_SECONDS = 10.0
"""A client that sends nothing must not hold its thread for ever."""
Problems = Callable[[], list[str]]
Answer = tuple[HTTPStatus, str, bytes]


class Server:
    """Serves until `stop`; port 0 takes a free one. Raises OSError where the port is taken."""

    def __init__(
        self, address: str, port: int, *, registry: CollectorRegistry, health: Problems, readiness: Problems
    ) -> None:
        pages: dict[str, Callable[[], Answer]] = {
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)),
            "/healthz": lambda: _check(health()),
            "/readyz": lambda: _check(readiness()),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = CLIENT_SECONDS

            def do_GET(self) -> None:
                page = pages.get(self.path.split("?")[0])
                missing = (HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")
                status, content_type, body = page() if page else missing
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
                log.debug(format, *args)

        self._http = ThreadingHTTPServer((address, port), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._http.server_address[1])

    def start(self) -> None:
        self._thread.start()
        log.info("serving /metrics, /healthz and /readyz on %s:%d", self._http.server_address[0], self.port)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join(2.0)
        self._http.server_close()


def _check(problems: list[str]) -> Answer:
    """200 `ok` without problems, else 503 and one line for each."""
    if not problems:
        return HTTPStatus.OK, "text/plain", b"ok\n"
    return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", "".join(f"{line}\n" for line in problems).encode()

"""Serves HTTP for people and probes of the controller and the agents: /metrics, /healthz, /readyz and given pages.

Takes functions that make a page when it is requested, and answers each request on its own thread. Any client in the
pod network may connect: a connection is ended when its time is up, whatever it sends meanwhile, and where there are too
many, the oldest one of the address that has the most. So probes and scrapes are answered while one client floods the
port. Read only: no path changes anything, and nothing here depends on what the pages mean.
"""

import contextlib
import json
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

log = logging.getLogger(__name__)
disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the page, and Prometheus does not use them

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
POLL_SECONDS = 0.1
"""How long `stop` may have to wait."""
CLIENT_SECONDS = 10.0
"""For one connection, from its start to the end of the answer."""
MOST_CONNECTIONS = 64
"""Of probes, Prometheus and people there are three or four at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer."""

    body: bytes
    content_type: str = TEXT
    status: int = HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class Private:
    """A page for some: `refusal` takes the header Authorization, and returns what others read."""

    make: Callable[[], Page]
    refusal: Callable[[str], Page | None]


Pages = Mapping[str, Callable[[], Page] | Private]


def metrics_page(registry: CollectorRegistry) -> Callable[[], Page]:
    """What Prometheus scrapes."""
    return one_at_a_time(lambda: Page(body=generate_latest(registry), content_type=CONTENT_TYPE_LATEST))


def check_page(problems: Callable[[], list[str]]) -> Callable[[], Page]:
    """200 `ok` without problems, else 500, as Kubernetes' own servers, and one line for each.

    `kubectl get --raw` prints what a 500 says, and of a 503 nothing but that the server is unavailable.
    """

    def page() -> Page:
        found = problems()
        if not found:
            return Page(body=b"ok\n")
        return Page(body="".join(f"{line}\n" for line in found).encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)

    return page


def json_page(document: Callable[[], Any]) -> Callable[[], Page]:
    """A JSON document, made when it is requested."""
    return one_at_a_time(lambda: Page(body=json.dumps(document()).encode() + b"\n", content_type=JSON))


def one_at_a_time(make: Callable[[], Page]) -> Callable[[], Page]:
    """For a page that takes long: however many request it, the process's own work gets half of its time at least."""
    lock = threading.Lock()

    def page() -> Page:
        with lock:
            return make()

    return page


class Server:
    """Serves until `stop`; port 0 takes a free one. Raises OSError where the port is taken."""

    def __init__(self, address: str, port: int, pages: Pages, client_seconds: float = CLIENT_SECONDS) -> None:
        self._http = _Http((address, port), pages, client_seconds)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(POLL_SECONDS,), name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._http.server_address[1])

    def start(self) -> None:
        self._thread.start()
        log.info("serving %s on %s:%d", " ".join(sorted(self._http.pages)), self._http.server_address[0], self.port)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()


@dataclass(slots=True)
class _Connection:
    began: float
    address: str


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], pages: Pages, client_seconds: float) -> None:
        self.pages = pages
        self._client_seconds = client_seconds
        self._lock = threading.Lock()
        self._open: dict[Any, _Connection] = {}
        self._running = 0
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._running += 1
            if len(self._open) >= MOST_CONNECTIONS:
                busiest = Counter(one.address for one in self._open.values()).most_common(1)[0][0]
                self._end(next(known for known, one in self._open.items() if one.address == busiest))
            if self._running <= 2 * MOST_CONNECTIONS:
                self._open[request] = _Connection(time.monotonic(), client_address[0])
        if request in self._open:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """End what is too old; called after each connection, and at least every POLL_SECONDS."""
        overdue = time.monotonic() - self._client_seconds
        with self._lock:
            for request in [known for known, one in self._open.items() if one.began <= overdue]:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._running -= 1
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class names it so
        log.debug("a connection of %s ended early", client_address, exc_info=True)

    def _end(self, request: Any) -> None:
        """Its thread finds the connection closed, and closes its own end."""
        del self._open[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_GET(self) -> None:
        make = self.server.pages.get(urlsplit(self.path).path)
        try:
            page = _page(make, self.headers.get("Authorization", "")) if make else _not_found(self.server.pages)
        except Exception:
            log.exception("page %s failed", self.path)
            page = Page(body=b"this page failed, see the log\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        log.debug("%s %s", self.address_string(), format % args)


def _page(make: Callable[[], Page] | Private, authorization: str) -> Page:
    if not isinstance(make, Private):
        return make()
    return make.refusal(authorization) or make.make()


def _not_found(pages: Pages) -> Page:
    return Page(body=f"not found; pages: {' '.join(sorted(pages))}\n".encode(), status=HTTPStatus.NOT_FOUND)

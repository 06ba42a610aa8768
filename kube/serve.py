"""Serves HTTP for people and probes of the controller and the agents: /metrics, /healthz, /readyz and given pages.

Takes functions that make a page when it is requested, and answers each request on a thread of its own. Read only: no
path changes anything, and nothing here depends on what the pages mean.
"""

import json
import logging
import threading
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
"""A client that sends nothing must not hold its thread for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer."""

    body: bytes
    content_type: str = TEXT
    status: int = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]


def metrics_page(registry: CollectorRegistry) -> Callable[[], Page]:
    """What Prometheus scrapes."""
    return lambda: Page(body=generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


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
    return lambda: Page(body=json.dumps(document()).encode() + b"\n", content_type=JSON)


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


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pages: Pages, client_seconds: float) -> None:
        self.pages = pages
        self.client_seconds = client_seconds
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.client_seconds)

    def do_GET(self) -> None:
        make = self.server.pages.get(urlsplit(self.path).path)
        try:
            page = make() if make is not None else _not_found(self.server.pages)
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


def _not_found(pages: Pages) -> Page:
    known = " ".join(sorted(pages))
    return Page(body=f"nothing here; there is {known}\n".encode(), status=HTTPStatus.NOT_FOUND)

"""An address for kubectl: gpuplan's pods answer with the log and the pages of the processes that stand for them.

Takes a client of the API server and a function from a pod to its process. Serves logs and ports of these pods, which
an API server fetches from a kubelet and a network that are not here, and passes everything else on as it is, watches
included. Listens on loopback only.
"""

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import yaml
from kubernetes.client import ApiClient

HOP = {"connection", "transfer-encoding", "content-length", "host", "accept-encoding"}
POD_PATH = re.compile(r"^/api/v1/namespaces/gpuplan-system/pods/([^/:]+)(?:/log|:(\d+)/proxy(/.*))$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What stands for a pod."""

    log: Path
    port: int
    """Of its pages, here."""
    named_port: int
    """The same in a pod, as the chart has it; 0: none."""


class Front:
    """Use as a context; `kubeconfig` is for kubectl."""

    def __init__(self, api: ApiClient, process_of: Callable[[str], Process | None]) -> None:
        handler = type("Handler", (_Handler,), {"api": api, "process_of": staticmethod(process_of)})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, name="front", daemon=True)

    def __enter__(self) -> "Front":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def kubeconfig(self) -> str:
        cluster = {"server": f"http://127.0.0.1:{self._http.server_port}"}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "front", "cluster": cluster}],
                "contexts": [{"name": "front", "context": {"cluster": "front"}}],
                "current-context": "front",
            }
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ApiClient
    process_of: Callable[[str], Process | None]

    def _answer(self) -> None:
        address = urlsplit(self.path)
        found = POD_PATH.match(address.path)
        process = self.process_of(found[1]) if found else None
        if found is None or process is None:
            self._pass_on()
        elif found[2] is None:
            self._send(200, _tail(process.log, int(parse_qs(address.query).get("tailLines", ["-1"])[0])))
        elif int(found[2]) != process.named_port:
            self._send(502, f"pod {found[1]} has no port {found[2]}".encode())
        else:
            self._send(*_page(process.port, found[3]))

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server calls these names

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        answer: Any = self.api.rest_client.pool_manager.request(
            self.command,
            f"{self.api.configuration.host}{self.path}",
            body=self.rfile.read(length) if length else None,
            headers={name: value for name, value in self.headers.items() if name.lower() not in HOP},
            preload_content=False,
            retries=False,
        )
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # kubectl has seen enough of a watch
                while chunk := answer.read1(1 << 16):
                    self.wfile.write(chunk)
                    self.wfile.flush()
        finally:
            answer.close()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """kubectl prints what matters."""


def _tail(log: Path, lines: int) -> bytes:
    found = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return b"".join(found if lines < 0 else found[-lines:])


def _page(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read()
    except HTTPError as refusal:
        return refusal.code, refusal.read()
    except OSError as error:
        return 502, str(error).encode()

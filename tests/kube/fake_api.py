"""A scripted HTTP server: routes answer with a status and JSON, or stream lines that the test pushes.

It speaks HTTP/1.1 with chunked answers, like the real one, and can hang, break off and refuse, which a well-behaved
server does not do on demand.
"""

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.waiting import SECONDS


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Stream:
    """A watch answer. `send` events, `end` it well, or `break_off` in the middle of a line."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[bytes | None] = queue.Queue()
        self.broken = False

    def send(self, kind: str, item: dict[str, Any]) -> None:
        self._pieces.put(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def end(self) -> None:
        self._pieces.put(None)

    def break_off(self, piece: bytes) -> None:
        self.broken = True
        self._pieces.put(piece)
        self._pieces.put(None)

    def pieces(self, stopped: threading.Event) -> Iterator[bytes]:
        while not stopped.is_set():
            with contextlib.suppress(queue.Empty):
                piece = self._pieces.get(timeout=0.02)
                if piece is None:
                    return
                yield piece


class Hang:
    """No answer at all until the server stops."""


Answer = Reply | Stream | Hang
Route = Callable[[Request], Answer]


def status(code: int, reason: str = "", **fields: Any) -> Reply:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, **fields}
    return Reply(body, status=code)


class FakeApi:
    def __init__(self, route: Route) -> None:
        self.route = route
        self.requests: list[Request] = []
        self.stopped = threading.Event()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                pass

            def handle_any(self) -> None:
                api.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - names of the base class

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients break connections here on purpose

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)

    def of(self, method: str, **query: str) -> list[Request]:
        return [r for r in self.requests if r.method == method and query.items() <= r.query.items()]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        text = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(
            method=handler.command,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            headers={name.lower(): value for name, value in handler.headers.items()},
            body=json.loads(text) if text else None,
        )
        self.requests.append(request)
        answer = self.route(request)
        if isinstance(answer, Hang):
            self.stopped.wait()
            handler.close_connection = True
        elif isinstance(answer, Stream):
            self._stream(handler, answer)
        else:
            self._reply(handler, answer)

    def _reply(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        handler.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _stream(self, handler: BaseHTTPRequestHandler, stream: Stream) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in stream.pieces(self.stopped):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        if stream.broken:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")


class LeaseStore:
    """One object per path with a resourceVersion that a PUT must match: enough of an API server for leases."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.lock = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        with self.lock:
            return self._answer(request)

    def _answer(self, request: Request) -> Answer:
        path = request.path
        if request.method == "POST":
            path = f"{path}/{request.body['metadata']['name']}"
            if path in self.items:
                return status(409, "AlreadyExists", message=f"{path} already exists")
        elif request.method == "PATCH":
            old = self.items.get(path)
            if old is None and "apply" not in request.headers["content-type"]:
                return status(404, "NotFound")
            return self._store(path, {**(old or {}), **request.body})
        elif path not in self.items:
            return status(404, "NotFound")
        elif request.method == "PUT":
            if request.body["metadata"]["resourceVersion"] != self.items[path]["metadata"]["resourceVersion"]:
                return status(409, "Conflict", message="the object has been modified")
        else:
            return Reply(self.items[path])
        return self._store(path, request.body)

    def _store(self, path: str, body: dict[str, Any]) -> Reply:
        self.version += 1
        metadata = {**body.get("metadata", {}), "resourceVersion": str(self.version)}
        self.items[path] = {**body, "metadata": metadata}
        return Reply(self.items[path])

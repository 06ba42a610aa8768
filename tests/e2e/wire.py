"""A wire between one client and the API server that a test can hold, cut, mend and slow down.

Takes a kubeconfig; returns the same with the wire's address; the client speaks plain HTTP to the wire, the wire TLS to
the server. `hold` keeps requests that begin in a given way until `release`, whatever becomes of their sender meanwhile.
An opaque wire passes the client's own TLS on, for one that shows the server a certificate: it sees no requests.
"""

import base64
import contextlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from urllib.parse import urlsplit

import yaml

CHUNK_BYTES = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Wire:
    """Works from the start on; end it with `close`."""

    def __init__(self, kubeconfig: str, *, late_seconds: float = 0.0, opaque: bool = False) -> None:
        """`late_seconds`: how much later whatever either side sends arrives; as much of it as comes."""
        self._late_seconds = late_seconds
        self._config = yaml.safe_load(kubeconfig)
        (entry,) = self._config["clusters"]
        server = urlsplit(entry["cluster"]["server"])
        self._target = (str(server.hostname), int(server.port or 443))
        self._context: ssl.SSLContext | None = None
        if not opaque:
            authority = base64.b64decode(entry["cluster"].pop("certificate-authority-data")).decode()
            self._context = ssl.create_default_context(cadata=authority)
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if opaque else "http"
        entry["cluster"]["server"] = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._kept: re.Pattern[bytes] | None = None
        self._open = threading.Event()
        self._whole = threading.Event()
        self._open.set()
        self._whole.set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.held = threading.Event()
        """At least one request is being held."""
        threading.Thread(target=self._accept, daemon=True, name="wire").start()

    @property
    def kubeconfig(self) -> str:
        """For the client."""
        return str(yaml.safe_dump(self._config))

    def hold(self, request: re.Pattern[bytes]) -> None:
        """From now on keep requests that begin like this."""
        self.held.clear()
        self._open.clear()
        self._kept = request

    def release(self) -> None:
        """Let them go on to the server, and answers back."""
        self._kept = None
        self._open.set()

    def cut(self) -> None:
        """End every connection, and refuse new ones."""
        self._whole.clear()
        with self._lock:
            ends, self._sockets = self._sockets, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self) -> None:
        """Connect again."""
        self._whole.set()

    def close(self) -> None:
        """Permanently."""
        self.release()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if not self._whole.is_set():
                    client.close()
                    continue
                server = self._connect()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._sockets |= {client, server}
            threading.Thread(target=self._upstream, args=(client, server), daemon=True).start()
            threading.Thread(target=self._downstream, args=(client, server), daemon=True).start()

    def _connect(self) -> socket.socket:
        made = socket.create_connection(self._target, timeout=10)
        return self._context.wrap_socket(made, server_hostname=self._target[0]) if self._context is not None else made

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        """Requests. The server does not notice when the client goes: a request under way is carried out."""
        with contextlib.suppress(OSError, ValueError):
            pieces = self._pieces(client)
            for piece in pieces:
                kept, data = self._kept, piece
                if kept is not None and kept.match(data):
                    while _unfinished(data) and (more := next(pieces, b"")):
                        data += more  # the sender may be frozen as soon as it is reported as held
                    self.held.set()
                    self._open.wait()
                server.sendall(data)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            for data in self._pieces(server):
                with contextlib.suppress(OSError):
                    client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _pieces(self, end: socket.socket) -> Iterator[bytes]:
        """What this end sends, each piece as late as the others: a watch is late, and never behind by more."""
        if not self._late_seconds:
            while data := end.recv(CHUNK_BYTES):
                yield data
            return
        came: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        threading.Thread(target=_read, args=(end, came), daemon=True).start()
        while (piece := came.get())[1]:
            time.sleep(max(0.0, piece[0] + self._late_seconds - time.monotonic()))
            yield piece[1]


def _read(end: socket.socket, came: "SimpleQueue[tuple[float, bytes]]") -> None:
    """Each piece with the moment at which it came; nothing: no more comes."""
    data = b"more"
    while data:
        try:
            data = end.recv(CHUNK_BYTES)
        except (OSError, ValueError):
            data = b""
        came.put((time.monotonic(), data))


def _unfinished(request: bytes) -> bool:
    """Clients send head and body one after the other."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return not end or len(body) < int(length[1] if length else 0)

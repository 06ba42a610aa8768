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
from urllib.parse import urlsplit

import yaml

CHUNK_BYTES = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Wire:
    """Works from the start on; end it with `close`."""

    def __init__(self, kubeconfig: str, *, late_seconds: float = 0.0, opaque: bool = False) -> None:
        """`late_seconds`: what each piece of a request, and each of an answer or of a watch, is held back."""
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
            while data := client.recv(CHUNK_BYTES):
                kept = self._kept
                if kept is not None and kept.match(data):
                    while _unfinished(data) and (more := client.recv(CHUNK_BYTES)):
                        data += more  # the sender may be frozen as soon as it is reported as held
                    self.held.set()
                    self._open.wait()
                time.sleep(self._late_seconds)
                server.sendall(data)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := server.recv(CHUNK_BYTES):
                time.sleep(self._late_seconds)
                with contextlib.suppress(OSError):
                    client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _unfinished(request: bytes) -> bool:
    """Clients send head and body one after the other."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return not end or len(body) < int(length[1] if length else 0)

"""A registry on loopback that serves OCI layouts for reading, as a public one would serve what was pushed to it.

Takes the layouts by their names and answers what containerd and helm ask: manifests by tag or digest, and blobs (OCI
distribution specification). It writes nothing.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PATH = re.compile(r"^/v2/(?P<name>[a-z/]+)/(?P<kind>manifests|blobs)/(?P<reference>[A-Za-z0-9:._-]+)$")


@contextmanager
def serving(layouts: Mapping[str, Path]) -> Iterator[str]:
    """The address, host and port."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

        def _answer(self) -> None:
            if self.path == "/v2/":
                return self._send(200, "application/json", b"{}")
            asked = PATH.match(self.path)
            layout = layouts.get(asked["name"]) if asked else None
            if asked is None or layout is None:
                return self._send(404, "application/json", b'{"errors": [{"code": "NAME_UNKNOWN"}]}')
            digest = _digest(layout, asked["reference"])
            blob = layout / "blobs" / digest.replace(":", "/")
            if not digest or not blob.is_file():
                return self._send(404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            content, media_type = blob.read_bytes(), "application/octet-stream"
            if asked["kind"] == "manifests":
                media_type = json.loads(content)["mediaType"]
            return self._send(200, media_type, content, digest)

        def _send(self, code: int, media_type: str, content: bytes, digest: str = "") -> None:
            self.send_response(code)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def entry(layout: Path) -> dict[str, str]:
    """The descriptor of what a layout holds, with its tag under `tag`."""
    (found,) = json.loads((layout / "index.json").read_text())["manifests"]
    return {**found, "tag": found["annotations"]["org.opencontainers.image.ref.name"]}


def _digest(layout: Path, reference: str) -> str:
    if reference.startswith("sha256:"):
        return reference
    found = entry(layout)
    return found["digest"] if found["tag"] == reference else ""

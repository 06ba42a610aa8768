"""An API server that a kubelet does not reach at first: connections are refused until `open`, then passed on."""

import select
import socket
import socketserver
import threading
from urllib.parse import urlsplit

CHUNK = 65536


class LateApi:
    """In the place of the server at `url`."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)

        class Relay(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection((target.hostname, target.port)) as server:
                    ends = {self.request: server, server: self.request}
                    while True:
                        for one in select.select(list(ends), [], [])[0]:
                            data = one.recv(CHUNK)
                            if not data:
                                return
                            ends[one].sendall(data)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.server_bind()
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def open(self) -> None:
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

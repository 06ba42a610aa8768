"""Serves gRPC on unix sockets whose files stay when the server dies, as those of a kubelet do.

Takes a path and services. gRPC removes the file that it has bound when it stops, a kubelet leaves its dead one behind;
so gRPC binds a hidden name, and the socket is then renamed.
"""

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from kube.kubelet_api.paths import MAX_SOCKET_PATH_BYTES, unix_target


class SocketServer:
    def __init__(
        self, hidden: Path, public: Path, add_services: Callable[[grpc.Server], None], *, threads: int
    ) -> None:
        for path in (hidden, public):
            if len(str(path).encode()) > MAX_SOCKET_PATH_BYTES:
                raise ValueError(f"{path} is too long for a unix socket ({MAX_SOCKET_PATH_BYTES} bytes)")
        self._hidden = hidden
        self._public = public
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=public.parent.name)
        self._server = grpc.server(self._threads)
        add_services(self._server)

    def start(self) -> None:
        """The public name appears when calls are answered."""
        self._hidden.unlink(missing_ok=True)
        self._server.add_insecure_port(unix_target(self._hidden))
        self._server.start()
        # No link: its second name would change the inode's ctime once more when it goes, and plugins compare that.
        self._hidden.replace(self._public)

    def stop(self, grace_seconds: float | None = None) -> None:
        """At once, as a process that ends: calls under way are cut off, after this time where one is given."""
        self._server.stop(grace_seconds).wait(5.0)
        self._threads.shutdown(wait=False, cancel_futures=True)


def remove_sockets(folder: Path) -> None:
    """What a kubelet does to its plugin directory at start; files and folders stay."""
    for path in sorted(folder.iterdir()):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()

"""A socket of a kubelet is one file from the moment at which its name appears."""

import threading
from pathlib import Path

from nodeagent.handover.files import Identity, identity
from sandbox.kubelet.sockets import SocketServer


def identities(path: Path, over: threading.Event, seen: set[Identity]) -> None:
    """What a device plugin that waits for the name sees of it."""
    while not over.is_set():
        if found := identity(path):
            seen.add(found)


def test_who_sees_the_name_sees_the_identity_that_it_keeps(root: Path) -> None:
    """A plugin that sees two registers twice and is without its devices for a second: pods are rejected meanwhile."""
    public = root / "kubelet.sock"
    for _ in range(30):
        server = SocketServer(root / ".k", public, lambda _: None, threads=1)
        over, seen = threading.Event(), set[Identity]()
        watcher = threading.Thread(target=identities, args=(public, over, seen))
        watcher.start()
        server.start()
        over.set()
        watcher.join()
        server.stop()
        assert seen <= {identity(public)}
        public.unlink()

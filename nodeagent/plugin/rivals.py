"""Sockets of another GPU device plugin in the kubelet's directory.

Takes the directory, returns the names of NVIDIA's sockets (its forks and GKE's plugin name theirs alike) that some
process serves: the file of a process that was killed stays behind until the kubelet starts again. Connects and hangs
up; never speaks the protocol, since a second stream would take updates away from the kubelet.
"""

from __future__ import annotations

import socket
from pathlib import Path

PATTERN = "nvidia*.sock"


def rival_sockets(plugin_dir: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in plugin_dir.glob(PATTERN) if _served(path)))
    except OSError:
        return ()


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full queue, or no right to ask: nothing says that it is dead
    return True

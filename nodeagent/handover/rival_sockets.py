"""Finds sockets of another GPU device plugin in the kubelet's directory.

Takes the directory, returns the names of the sockets of NVIDIA's plugin, its forks and GKE's that some process serves:
the file of a process that was killed stays behind until the kubelet starts again. Connects and hangs up; never speaks
the protocol, since a second stream would take updates away from the kubelet.
"""

import socket
from pathlib import Path

PATTERNS = ("nvidia-*.sock", "nvidiaGPU-*.sock")
"""Of NVIDIA's plugin and of GKE's. Not `nvidia.com_*`: those are network devices of the SR-IOV plugin."""


def rival_sockets(plugin_dir: Path) -> tuple[str, ...]:
    try:
        found = [path for pattern in PATTERNS for path in plugin_dir.glob(pattern)]
    except OSError:
        return ()
    return tuple(sorted(path.name for path in found if _served(path)))


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full queue, or no permission: nothing shows that it is dead
    return True

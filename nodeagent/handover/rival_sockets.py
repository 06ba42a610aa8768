"""Finds sockets of another GPU device plugin, or of a DRA driver, in the kubelet's directories.

Takes a directory, returns the names of the sockets that some process serves, whatever labels its pod has: those of
NVIDIA's plugin, its forks and GKE's, or those of the driver. The file of a process that was killed stays behind until
the kubelet starts again. Connects and hangs up; never speaks the protocol, since a second stream would take updates
away from the kubelet.
"""

import os
import socket
from collections.abc import Iterable
from pathlib import Path

PATTERNS = ("nvidia-*.sock", "nvidiaGPU-*.sock")
"""Of NVIDIA's plugin and of GKE's. Not `nvidia.com_*`: those are network devices of the SR-IOV plugin."""


def rival_sockets(plugin_dir: Path) -> tuple[str, ...]:
    return _served_below(plugin_dir, PATTERNS)


def driver_sockets(kubelet_dir: Path, driver: str) -> tuple[str, ...]:
    """By which it registers, and by which the kubelet calls it; during a rolling update both have its pod's UID."""
    patterns = [f"plugins_registry/{driver}{uid}-reg.sock" for uid in ("", "-*")]
    return _served_below(kubelet_dir, (*patterns, f"plugins/{driver}/dra*.sock"))


def _served_below(directory: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    try:
        found = [path for pattern in patterns for path in directory.glob(pattern)]
    except OSError:
        return ()
    return tuple(sorted(str(path.relative_to(directory)) for path in found if _served(path)))


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            folder = os.open(path.parent, os.O_PATH)
        except OSError:
            return False
        try:
            # An address has room for 107 bytes, which the kubelet's directory on the host can exceed.
            probe.connect(f"/proc/self/fd/{folder}/{path.name}")
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full queue, or no permission: nothing shows that it is dead
        finally:
            os.close(folder)
    return True

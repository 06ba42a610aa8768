"""Reads what NVIDIA's device plugin and MPS control daemon leave on the node's disk.

Takes the kubelet's directory and the root of NVIDIA's MPS daemons; returns, for a pod, which config its config-manager
has chosen and the digest of a projected key, and when a resource's socket or daemon was made. The text under a chosen
key proves nothing: it changes before any process reads it. Times are change times of this node's disk, in nanoseconds.
Only reads; what cannot be read is as good as absent.
"""

import hashlib
import os
from pathlib import Path

from kube.kubelet_api.paths import KubeletPaths
from nodeagent.handover.files import identity

DATA = "..data"


class NodeFiles:
    def __init__(self, kubelet_dir: Path, mps_root: Path) -> None:
        self._pods, self._sockets = kubelet_dir / "pods", KubeletPaths(kubelet_dir).plugin_dir
        self._mps_root = mps_root

    def chosen(self, pod_uid: str) -> tuple[str, int]:
        """Which key of the ConfigMap config-manager has chosen in a pod, and when; empty where there is none yet.

        The link dangles on the host: its name counts.
        """
        link = self._pods / pod_uid / "volumes" / "kubernetes.io~empty-dir" / "config" / "config.yaml"
        try:
            return link.readlink().name, os.lstat(link).st_ctime_ns
        except OSError:
            return "", 0

    def digest(self, pod_uid: str, key: str) -> str:
        """SHA-256 of a key as this pod sees it, in hexadecimal digits; empty where it does not."""
        for folder in self.projections(pod_uid):
            try:
                return hashlib.sha256((folder / DATA / key).read_bytes()).hexdigest()
            except OSError:
                continue
        return ""

    def projections(self, pod_uid: str) -> tuple[Path, ...]:
        """Its ConfigMap volumes: the kubelet replaces the link `..data` in them, and nothing behind it."""
        volumes = self._pods / pod_uid / "volumes" / "kubernetes.io~configmap"
        return tuple(sorted(link.parent for link in volumes.glob(f"*/{DATA}")))

    def served_ns(self, resource: str) -> int:
        """When the plugin last began to serve a resource; 0 while it does not."""
        return _changed_ns(self._sockets / f"nvidia-{resource.rpartition('/')[2]}.sock")

    def started_ns(self, resource: str) -> int:
        """When the MPS daemon of a resource last had its limits set; 0 while it does not run."""
        return _changed_ns(self._mps_root / resource / ".started")


def _changed_ns(path: Path) -> int:
    found = identity(path)
    return found[1] if found is not None else 0

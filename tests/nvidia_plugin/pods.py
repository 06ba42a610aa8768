"""The pods of NVIDIA's three DaemonSets, as its Helm chart v0.20.0 makes them, and their comings and goings.

Takes an API client and a node's name. All three have the same labels and differ by the names of their containers. A pod
that is deleted comes back under a new uid; a DaemonSet leaves a node with a taint that it does not tolerate alone.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiClient

from kube import apply
from kube.errors import NotFound
from tests.nvidia_plugin.feature_discovery import MPS_CAPABLE

TOLERATED = ("CriticalAddonsOnly", "nvidia.com/gpu")
LABELS = {"app.kubernetes.io/name": "nvidia-device-plugin", "app.kubernetes.io/instance": "nvdp"}
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """`host_paths` by volume name; `selector` is a node label that must be true."""

    name: str
    container: str
    program: str
    host_paths: tuple[tuple[str, str], ...] = ()
    selector: str = ""

    @property
    def sidecar(self) -> str:
        return self.container.replace("-ctr", "-sidecar")


_MPS = (("mps-root", "/run/nvidia/mps"), ("mps-shm", "/run/nvidia/mps/shm"))
PLUGIN = DaemonSet(
    "nvdp",
    "nvidia-device-plugin-ctr",
    "nvidia-device-plugin",
    (("kubelet-device-plugins-dir", "/var/lib/kubelet/device-plugins"), *_MPS),
)
MPS_DAEMON = DaemonSet("nvdp-mps-control-daemon", "mps-control-daemon-ctr", "mps-control-daemon", _MPS, MPS_CAPABLE)
DISCOVERY = DaemonSet("nvdp-gpu-feature-discovery", "gpu-feature-discovery-ctr", "gpu-feature-discovery")
DAEMON_SETS = (PLUGIN, MPS_DAEMON, DISCOVERY)


class DaemonSets:
    """Plays their controller for one node."""

    def __init__(self, api: ApiClient, namespace: str, config_map: str, node: str) -> None:
        self._api, self._node, self._config_map = api, node, config_map
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._numbers = itertools.count(1)
        self._names: dict[str, str] = {}

    def step(self, node: Raw) -> dict[str, Raw]:
        """Create and delete what is due; returns the pods that are there, by the DaemonSet's name."""
        found: dict[str, Raw] = {}
        for daemon_set in DAEMON_SETS:
            pod = self._pod(daemon_set)
            wanted = not daemon_set.selector or node["metadata"].get("labels", {}).get(daemon_set.selector) == "true"
            if pod is None and wanted and not _keeps_off(node):
                pod = self._create(daemon_set)
            elif pod is not None and not wanted and not pod["metadata"].get("deletionTimestamp"):
                apply.delete(self._api, f"{self._path}/{pod['metadata']['name']}")
            if pod is not None:
                found[daemon_set.name] = pod
        return found

    def delete(self, daemon_set: DaemonSet) -> None:
        """As kubectl delete pod does."""
        apply.delete(self._api, f"{self._path}/{self._names[daemon_set.name]}")

    def _pod(self, daemon_set: DaemonSet) -> Raw | None:
        name = self._names.get(daemon_set.name)
        if name is None:
            return None
        try:
            return apply.get(self._api, f"{self._path}/{name}")
        except NotFound:
            return None

    def _create(self, daemon_set: DaemonSet) -> Raw:
        name = f"{daemon_set.name}-{self._node}-{next(self._numbers)}"
        self._names[daemon_set.name] = name
        volumes: list[Raw] = [{"name": volume, "hostPath": {"path": path}} for volume, path in daemon_set.host_paths]
        volumes += [{"name": "available-configs", "configMap": {"name": self._config_map}}]
        volumes += [{"name": "config", "emptyDir": {}}]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon_set.name, "uid": f"uid-{daemon_set.name}"}
        image = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": LABELS, "ownerReferences": [{**owner, "controller": True}]},
            "spec": {
                "nodeName": self._node,
                "containers": [
                    {"name": daemon_set.sidecar, "image": image, "command": ["config-manager"]},
                    {"name": daemon_set.container, "image": image, "command": [daemon_set.program]},
                ],
                "tolerations": [{"key": key, "operator": "Exists"} for key in TOLERATED],
                "volumes": volumes,
            },
        }
        return apply.create(self._api, self._path, body)


def _keeps_off(node: Raw) -> bool:
    taints = node.get("spec", {}).get("taints") or ()
    return any(taint["effect"] != "PreferNoSchedule" and taint["key"] not in TOLERATED for taint in taints)

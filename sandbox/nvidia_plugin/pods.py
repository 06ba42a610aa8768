"""One pod of NVIDIA's DaemonSets v0.20.0: its manifest, and what it has on its node, a program and a config-manager.

All three have the same labels and differ by the names of their containers. Each pod has a projected volume of its own,
an emptyDir that ends with it, and processes that are started again, ever later, after each error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.nvidia_plugin.config_manager import MOUNTED, ConfigManager, Signal
from sandbox.nvidia_plugin.programs import MPS_CAPABLE, Program
from sandbox.nvidia_plugin.projection import ConfigMapVolume

TOLERATED = ("CriticalAddonsOnly", "nvidia.com/gpu")
LABELS = {"app.kubernetes.io/name": "nvidia-device-plugin", "app.kubernetes.io/instance": "nvdp"}
IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """`host_paths` by volume name; `selector` is a node label that must be true."""

    name: str
    container: str
    program: str
    host_paths: tuple[tuple[str, str], ...] = ()
    selector: str = ""

    def belongs_on(self, node: Raw) -> bool:
        return not self.selector or (node["metadata"].get("labels") or {}).get(self.selector) == "true"

    def manifest(self, name: str, node: str, config_map: str) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": self.name, "uid": f"uid-{self.name}"}
        containers = {self.container.replace("-ctr", "-sidecar"): "config-manager", self.container: self.program}
        volumes: list[Raw] = [{"name": volume, "hostPath": {"path": path}} for volume, path in self.host_paths]
        configs: Raw = {"name": "available-configs", "configMap": {"name": config_map}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": LABELS, "ownerReferences": [{**owner, "controller": True}]},
            "spec": {
                "nodeName": node,
                "containers": [{"name": n, "image": IMAGE, "command": [run]} for n, run in containers.items()],
                "tolerations": [{"key": key, "operator": "Exists"} for key in TOLERATED],
                "volumes": [*volumes, configs, {"name": "config", "emptyDir": {}}],
            },
        }


_MPS = (("mps-root", "/run/nvidia/mps"), ("mps-shm", "/run/nvidia/mps/shm"))
_SOCKETS = ("kubelet-device-plugins-dir", "/var/lib/kubelet/device-plugins")
PLUGIN = DaemonSet("nvdp", "nvidia-device-plugin-ctr", "nvidia-device-plugin", (_SOCKETS, *_MPS))
MPS_DAEMON = DaemonSet("nvdp-mps-control-daemon", "mps-control-daemon-ctr", "mps-control-daemon", _MPS, MPS_CAPABLE)
DISCOVERY = DaemonSet("nvdp-gpu-feature-discovery", "gpu-feature-discovery-ctr", "gpu-feature-discovery")
DAEMON_SETS = (PLUGIN, MPS_DAEMON, DISCOVERY)


def keeps_off(node: Raw) -> bool:
    """Whether the node has a taint that these pods do not tolerate."""
    taints = node.get("spec", {}).get("taints") or ()
    return any(taint["effect"] != "PreferNoSchedule" and taint["key"] not in TOLERATED for taint in taints)


class Pod:
    """What one pod has on the node's disk, and its two processes."""

    def __init__(
        self, uid: str, kubelet_dir: Path, program: Callable[[Callable[[], str]], Program], signal: Signal
    ) -> None:
        self.uid, self.folder = uid, kubelet_dir / "pods" / uid
        volumes = self.folder / "volumes"
        self.volume = ConfigMapVolume(volumes / "kubernetes.io~configmap" / "available-configs")
        self.chosen = volumes / "kubernetes.io~empty-dir" / "config" / "config.yaml"
        self.chosen.parent.mkdir(parents=True)
        self.program = program(self._config)
        self.manager = ConfigManager(self.volume, self.chosen, signal=signal)
        self.started = False
        self.due: list[tuple[float, Mapping[str, str]]] = []
        """Data of the ConfigMap that will be projected, and when."""
        self._again: dict[object, tuple[int, float | None]] = {}

    def step(self, now: float, label: str, backoff: tuple[float, ...]) -> None:
        """Whatever has ended is started again, in its time."""
        while self.due and self.due[0][0] <= now:
            self.volume.project(self.due.pop(0)[1])
        if not self.started:
            self.manager.run_once()
            self.started = self.manager.ended is None
            if self.started:
                self.manager.start()
                self.program.start(now)
            return
        if self.manager.running:
            self.manager.observe(label)  # a step after its start: until then the default is in force
        elif self._is_due(self.manager, now, backoff):
            self.manager.start()
        if not self.program.running and self._is_due(self.program, now, backoff):
            self.program.start(now)
        self.program.step(now)

    def _is_due(self, what: object, now: float, backoff: tuple[float, ...]) -> bool:
        times, at = self._again.get(what, (0, None))
        if at is None:
            self._again[what] = (times + 1, now + backoff[min(times, len(backoff) - 1)])
        elif now >= at:
            self._again[what] = (times, None)
        return at is not None and now >= at

    def _config(self) -> str:
        target = self.chosen.readlink()
        if target.is_relative_to(MOUNTED):
            target = self.volume.folder / target.relative_to(MOUNTED)
        return target.read_text()

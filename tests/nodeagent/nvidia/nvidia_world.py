"""A node on which NVIDIA's device plugin serves the GPUs: its pods, files and signals, moved by `step` only.

The files are real ones below a kubelet's directory; what is slow or lost is a switch. The controller's part is here
too: it writes the keys that a plan needs and labels the node as the status says. A label that moves while a container
runs with a device fails the test, whatever the kubelet lists.
"""

import itertools
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import yaml

from partitioning.models import GpuModel
from partitioning.nvidia_plugin import CONFIG_LABEL, NodeConfig
from sandbox.driver.machine import GpuOptions
from tests.builders.objects import pod
from tests.nodeagent.items import NODE, Raw
from tests.nodeagent.world import World

HELM = {"app.kubernetes.io/name": "nvidia-device-plugin"}
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
STEP_SECONDS = 5.0
PARTS = {"plugin": "nvidia-device-plugin-ctr", "mps": "mps-control-daemon-ctr"}


class NvidiaWorld(World):
    def __init__(self, path: Path, gpus: Iterable[tuple[GpuModel, GpuOptions]]) -> None:
        self.root, self.mps_root = path / "kubelet", path / "mps"
        (self.root / "device-plugins").mkdir(parents=True)
        self.config_map: dict[str, str] = {"default": "version: v1\n"}
        self.uids: dict[str, str] = {}
        """Of the pods that there are, by part."""
        self.projects = self.controls = self.signals = True
        """Keys reach the pods; the controller works; config-manager's signal reaches the plugin."""
        self.sighups: list[str] = []
        self.loaded = ""
        """The key that the plugin has read."""
        self.loses = 0
        """So many of the plugin's next registrations the kubelet loses, as it does where one comes too soon."""
        self.daemon_replicas = 0
        self.moves: list[str] = []
        self._projected: dict[str, dict[str, str]] = {}
        """By the pod's uid, what its files have."""
        self._serial = itertools.count(1)
        super().__init__(path, gpus)
        self.start("plugin")

    def settings(self) -> Raw:
        mine = {"nvidiaBackend": True, "kubeletDir": str(self.root), "nvidiaMpsRoot": str(self.mps_root)}
        return {**super().settings(), **mine}

    def start(self, part: str) -> None:
        """The DaemonSet makes a pod; its config-manager begins with the default."""
        uid = self.uids[part] = f"uid-{part}-{next(self._serial)}"
        volumes = [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
        raw = pod(part, namespace="nvidia", requests={}, uid=uid, node=NODE, metadata={"labels": HELM}, volumes=volumes)
        raw["spec"]["containers"][0]["name"] = PARTS[part]
        raw["status"] = {"phase": "Running", "startTime": f"t{uid}"}
        self.pods["nvidia", part] = raw
        self.kubelet.known.add(("nvidia", part))
        self.project(part)
        self.choose(part, "default")
        if part == "plugin":
            self.load("default")

    def end(self, part: str) -> None:
        del self.uids[part], self.pods["nvidia", part]
        self.kubelet.known.discard(("nvidia", part))

    def project(self, part: str) -> None:
        uid = self.uids[part]
        if self._projected.get(uid) == self.config_map:
            return
        self._projected[uid] = dict(self.config_map)
        folder = self._volumes(part) / "kubernetes.io~configmap" / "available-configs" / "..data"
        folder.mkdir(parents=True, exist_ok=True)
        for key, text in self.config_map.items():
            (folder / key).write_text(text)

    def choose(self, part: str, key: str) -> bool:
        """Switch the link; False where it is right already."""
        link = self._volumes(part) / "kubernetes.io~empty-dir" / "config" / "config.yaml"
        if link.is_symlink() and link.readlink().name == key:
            return False
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"/available-configs/{key}")
        return True

    def chosen(self, part: str) -> str:
        return (self._volumes(part) / "kubernetes.io~empty-dir" / "config" / "config.yaml").readlink().name

    def sighup(self, pod_uid: str, program: str) -> str:
        self.sighups.append(program)
        part = next(part for part, uid in self.uids.items() if uid == pod_uid)
        assert part == "plugin" or not self.busy(), f"the daemon is reloaded below containers with {self.busy()}"
        if part == "plugin" and self.loaded == self.chosen(part):
            assert not self.serves(), "devices that may be Unhealthy are made healthy again"
        self.effect(f"SIGHUP {program}")
        self.load(self.chosen("plugin")) if part == "plugin" else self.start_daemon()
        return ""

    def load(self, key: str) -> None:
        """The plugin reads its config and serves again."""
        self.loaded = key
        for path in (self.root / "device-plugins").glob("*.sock"):
            path.unlink()
        self._unregister(WHOLE)
        self._unregister(SHARED)
        config = self._read(key)
        if not config.shared or self.daemon_replicas:
            (self.root / "device-plugins" / f"nvidia-{config.resource.partition('/')[2]}.sock").touch()
            uuids = [self.gpu(index).uuid for index in range(2)]
            self._register(config.resource, tuple(i for uuid in uuids for i in sorted(config.ids(uuid))))

    def _register(self, resource: str, ids: tuple[str, ...]) -> None:
        self.kubelet.devices = {**self.kubelet.devices, resource: ids}
        if self.loses:
            self.loses -= 1
            self._unregister(resource)

    def _unregister(self, resource: str) -> None:
        self.kubelet.devices = {**self.kubelet.devices, resource: ()}

    def serves(self) -> bool:
        return any((self.root / "device-plugins").glob("*.sock"))

    def start_daemon(self) -> None:
        config = self._read(self.chosen("mps"))
        for path in self.mps_root.glob("*/*/.started"):
            path.unlink()
        self.daemon_replicas = config.replicas if config.shared else 0
        if config.shared:
            started = self.mps_root / config.resource / ".started"
            started.parent.mkdir(parents=True, exist_ok=True)
            started.touch()

    def _read(self, key: str) -> NodeConfig:
        return _understood(self.config_map[key])

    def _volumes(self, part: str) -> Path:
        return self.root / "pods" / self.uids[part] / "volumes"

    def step(self, seconds: float = 0.5) -> None:
        self.plugin.step()
        if self.controls:
            self.control()
        label = self.node["metadata"].get("labels", {}).get(CONFIG_LABEL, "default")
        for part in sorted(self.uids):
            if self.projects:
                self.project(part)
                switched = label in self.config_map and self.choose(part, label)
                if switched and part == "plugin" and self.signals:
                    self.load(label)
        if "plugin" in self.uids:
            self._discover(self._read(self.chosen("plugin")))
        if self.node_ticks:
            self.tick()
        self.clock.now += seconds

    def _discover(self, config: NodeConfig) -> None:
        """GPU feature discovery places the MPS daemon; the plugin tries again until it is there."""
        if config.shared and "mps" not in self.uids:
            if not self.tainted():
                self.start("mps")
        elif not config.shared and "mps" in self.uids:
            self.end("mps")
            self.daemon_replicas = 0
        if self.loaded == self.chosen("plugin") and config.shared and self.daemon_replicas and not self.serves():
            self.load(self.loaded)

    def control(self) -> None:
        """The controller: writes the key of the plan, and moves the label when the status names it."""
        plugin = self.status().get("devicePlugin") or {} if self.plan else {}
        labels = self.node["metadata"].setdefault("labels", {})
        key = plugin.get("config")
        if not key or plugin.get("backend") != "nvidia" or labels.get(CONFIG_LABEL) == key:
            return
        assert not self.busy(), f"the label moves to {key} while containers hold {self.busy()}"
        self.moves.append(key)
        self.node = {**self.node, "metadata": {**self.node["metadata"], "labels": {**labels, CONFIG_LABEL: key}}}
        self._node_written()

    def busy(self) -> list[str]:
        """Truth: devices of containers that run."""
        return sorted({i for ids in self.running.values() for i in ids})

    def plan_for(self, *gpus: Raw, config: NodeConfig | None = None, paused: bool = False) -> None:
        """A plan with this backend; the controller writes the key that it needs."""
        self.apply(*gpus, backend="nvidia", paused=paused)
        if config is not None:
            self.config_map[config.key] = config.text

    def label(self) -> str:
        return str(self.node["metadata"].get("labels", {}).get(CONFIG_LABEL, ""))

    def pass_by(self, seconds: float) -> set[tuple[str, str]]:
        """The states that the first GPU was in; passes become rarer with time."""
        found, began = set(), self.clock.now
        end = began + seconds
        while (left := end - self.clock.now) > 1e-6:  # what rounding leaves is no time
            self.run(min(max(STEP_SECONDS, (seconds - left) / 20), left))
            found.add(self.found())
        return found

    def until_lost(self) -> None:
        """The plugin has its config, and the kubelet does not know it."""
        self.loses = 1
        while self.loses:
            self.run()

    def taints(self) -> int:
        """How often the node was closed."""
        return self.effect.done.count("taint True")

    def until(self, state: tuple[str, str], seconds: float = 60.0, *, gpu: int = 0, step: float = 0.5) -> None:
        """Passes until this GPU is so; fails where it does not come."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.run(step)
            if self.found(gpu) == state:
                return
        raise AssertionError(f"{self.found(gpu)} after {seconds:g} s: {self.gpu_status(gpu).get('message')}")


@cache
def _understood(text: str) -> NodeConfig:
    """What NVIDIA's plugin does with a config; each step reads the same few again."""
    mps = (yaml.safe_load(text).get("sharing") or {}).get("mps")
    if not mps:
        return NodeConfig()
    return NodeConfig(replicas=mps["resources"][0]["replicas"], renamed=mps.get("renameByDefault", False))

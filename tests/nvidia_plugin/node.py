"""NVIDIA's device plugin, MPS control daemon and feature discovery on one simulated node, each pod with its sidecar.

Takes an API client, the node's folders and a clock; `step` does everything that is due. Each pod has a projected volume
of its own, which follows the ConfigMap late, an emptyDir that ends with the pod, and a config-manager that is started
again, ever later, after each error. The MPS daemon's never finds the process that it is to signal, as in NVIDIA's chart
and operator. Must never tell the product anything but by files, sockets and the API.
"""

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube import apply
from kube.errors import ApiError
from tests.nvidia_plugin.config_manager import MOUNTED, ConfigManager
from tests.nvidia_plugin.feature_discovery import FeatureDiscovery
from tests.nvidia_plugin.mps_daemon import MpsControlDaemon
from tests.nvidia_plugin.plugin import NvidiaDevicePlugin
from tests.nvidia_plugin.pods import DAEMON_SETS, DISCOVERY, MPS_DAEMON, PLUGIN, DaemonSet, DaemonSets, Raw
from tests.nvidia_plugin.processes import Processes
from tests.nvidia_plugin.projection import ConfigMapVolume

CONFIG_LABEL = "nvidia.com/device-plugin.config"
NO_PROCESS = "error finding pid: no process found"
STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The real ones are minutes."""

    projection_seconds: float = 1.0
    """Of the first pod; each later one is as much later."""
    discovery_seconds: float = 2.0
    backoff_seconds: tuple[float, ...] = (3.0, 6.0, 12.0)
    """Before an ended program is started again, the last one repeated."""


class Program(Protocol):
    """One of the three."""

    running: bool
    ended: str | None

    def start(self, now: float) -> None: ...
    def hang_up(self, now: float) -> None: ...
    def terminate(self, now: float) -> None: ...
    def step(self, now: float) -> None: ...


class Pod:
    """What one pod has on the node's disk, and its two processes."""

    def __init__(
        self,
        uid: str,
        kubelet_dir: Path,
        program: Callable[[Callable[[], str]], Program],
        signal: Callable[[], str | None],
    ) -> None:
        self.uid = uid
        self.folder = kubelet_dir / "pods" / uid
        volumes = self.folder / "volumes"
        self.volume = ConfigMapVolume(volumes / "kubernetes.io~configmap" / "available-configs")
        self.chosen = volumes / "kubernetes.io~empty-dir" / "config" / "config.yaml"
        self.chosen.parent.mkdir(parents=True)
        self.program = program(self._config)
        self.manager = ConfigManager(self.volume, self.chosen, signal=signal)
        self.started = False
        self.due: list[tuple[float, Mapping[str, str]]] = []
        self._again: dict[str, tuple[int, float]] = {}

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
        elif self._is_due("manager", now, backoff):
            self.manager.start()
        if not self.program.running and self._is_due("program", now, backoff):
            self.program.start(now)
        self.program.step(now)

    def _is_due(self, what: str, now: float, backoff: tuple[float, ...]) -> bool:
        times, at = self._again.get(what, (0, 0.0))
        if at == 0.0:
            self._again[what] = (times + 1, now + backoff[min(times, len(backoff) - 1)])
            return False
        if now >= at:
            self._again[what] = (times, 0.0)
        return now >= at

    def _config(self) -> str:
        target = self.chosen.readlink()
        if target.is_relative_to(MOUNTED):
            target = self.volume.folder / target.relative_to(MOUNTED)
        return target.read_text()


class NvidiaNode:
    """Call `step` often, or `start` for a thread that does."""

    def __init__(
        self,
        api: ApiClient,
        name: str,
        *,
        kubelet_dir: Path,
        mps_root: Path,
        machine: Path,
        config_map: tuple[str, str] = ("nvidia", "plugin-configs"),
        timings: Timings | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self.deaf = False
        """Signals are sent to the device plugin and do not arrive."""
        self.history: list[dict[str, tuple[str, ...]]] = []
        """What the plugin served, each time that it changed."""
        self.processes = Processes(kubelet_dir.parent / "processes")
        self.signalled: list[str] = []
        """Programs that got a signal by another program than their sidecar."""
        self.exits: list[str] = []
        """Errors that ended one of the three programs."""
        self._api, self._clock, self._timings = api, clock, timings or Timings()
        self._kubelet_dir, self._mps_root, self._machine = kubelet_dir, mps_root, machine
        self._config_map = config_map
        self.daemon_sets = DaemonSets(api, config_map[0], config_map[1], name)
        self._pods: dict[str, Pod] = {}
        self._data: Mapping[str, str] = {}
        self._labels: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nvidia {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End everything."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for pod in self._pods.values():
            pod.program.terminate(self._clock())

    def pod(self, daemon_set: DaemonSet) -> Pod | None:
        """None while it does not run."""
        return self._pods.get(daemon_set.name)

    def step(self) -> None:
        """Everything that is due now."""
        with self._lock:
            node = apply.get(self._api, paths.node(self.name))
            label = (node["metadata"].get("labels") or {}).get(CONFIG_LABEL, "")
            now = self._clock()
            self._follow(self.daemon_sets.step(node))
            self._project(now)
            for pod in self._pods.values():
                pod.step(now, label, self._timings.backoff_seconds)
                if pod.program.ended and pod.program.ended not in self.exits:
                    self.exits.append(pod.program.ended)
            self._hear(now)
            self._note()
            self._discover(now)

    def _run(self) -> None:
        while not self._ended.wait(STEP_SECONDS):
            try:
                self.step()
            except ApiError:
                continue

    def _follow(self, found: Mapping[str, Raw]) -> None:
        """Bring the node's disk and processes in line with the pods of the API."""
        for name, pod in list(self._pods.items()):
            raw = found.get(name)
            if raw is None or raw["metadata"]["uid"] != pod.uid or raw["metadata"].get("deletionTimestamp"):
                pod.manager.stop()
                pod.program.terminate(self._clock())
                if not pod.program.running:  # a daemon waits for its clients
                    del self._pods[name]
                    shutil.rmtree(pod.folder)
        for name, raw in found.items():
            runs = raw.get("status", {}).get("phase") == "Running" and not raw["metadata"].get("deletionTimestamp")
            if runs and name not in self._pods:
                self._pods[name] = made = self._made(name, raw["metadata"]["uid"])
                made.due.append((0.0, self._data))

    def _made(self, name: str, uid: str) -> Pod:
        def program(read: Callable[[], str]) -> Program:
            if name == MPS_DAEMON.name:
                return MpsControlDaemon(self._mps_root, self._machine, read)
            if name == DISCOVERY.name:
                return FeatureDiscovery(self._machine, read, delay_seconds=self._timings.discovery_seconds)
            return NvidiaDevicePlugin(self._kubelet_dir, self._mps_root, self._machine, read)

        return Pod(uid, self._kubelet_dir, program, lambda: self._signal(name))

    def _signal(self, name: str) -> str | None:
        pod = self._pods[name]
        if name == MPS_DAEMON.name or not pod.program.running:
            return NO_PROCESS
        if not (self.deaf and name == PLUGIN.name):
            pod.program.hang_up(self._clock())
        return None

    def _project(self, now: float) -> None:
        namespace, name = self._config_map
        data = apply.get(self._api, paths.config_map(namespace, name)).get("data") or {}
        if data == self._data:
            return
        self._data = data
        for number, pod in enumerate(self._pods.values(), start=1):
            pod.due.append((now + number * self._timings.projection_seconds, data))

    def _hear(self, now: float) -> None:
        """Signals of another program than the sidecar."""
        runs = {s.program: self._pods[s.name].uid for s in DAEMON_SETS if s.name in self._pods}
        for program in self.processes.show(runs):
            self.signalled.append(program)
            next(self._pods[s.name] for s in DAEMON_SETS if s.program == program).program.hang_up(now)

    def _note(self) -> None:
        pod = self._pods.get(PLUGIN.name)
        serves = dict(pod.program.resources) if pod and isinstance(pod.program, NvidiaDevicePlugin) else {}
        if not self.history or self.history[-1] != serves:
            self.history.append(serves)

    def _discover(self, now: float) -> None:
        pod = self._pods.get(DISCOVERY.name)
        labels = pod.program.labels(now) if pod and isinstance(pod.program, FeatureDiscovery) else {}
        if labels and labels != self._labels:
            apply.merge_patch(self._api, paths.node(self.name), {"metadata": {"labels": dict(labels)}})
            self._labels = labels

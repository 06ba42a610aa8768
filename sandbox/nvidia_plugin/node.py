"""NVIDIA's device plugin, MPS control daemon and feature discovery on one simulated node, each pod with its sidecar.

Takes an API client, the node's folders and a clock; `step` does everything that is due, the part of the DaemonSets'
controller included: a pod that is deleted comes back under a new uid. Each pod's volume follows the ConfigMap late. The
MPS daemon's config-manager never finds the process that it is to signal, as in NVIDIA's chart and operator. Must never
tell the product anything but by files, sockets and the API.
"""

import contextlib
import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube import apply
from kube.errors import ApiError, NotFound
from sandbox.driver.procfs import proc_of
from sandbox.loop import Loop
from sandbox.nvidia_plugin.discovery import FeatureDiscovery
from sandbox.nvidia_plugin.mps_daemon import MpsControlDaemon
from sandbox.nvidia_plugin.plugin import NvidiaDevicePlugin
from sandbox.nvidia_plugin.pods import DAEMON_SETS, DISCOVERY, MPS_DAEMON, DaemonSet, Pod, Raw, keeps_off
from sandbox.nvidia_plugin.processes import Processes
from sandbox.nvidia_plugin.programs import Program

CONFIG_LABEL = "nvidia.com/device-plugin.config"
NAMESPACE, CONFIG_MAP = "gpu-operator", "plugin-configs"
NO_PROCESS = "error finding pid: no process found"
STEP_SECONDS = 0.1
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The real ones are minutes."""

    projection_seconds: float = 1.0
    """Of the first pod; each later one is as much later."""
    discovery_seconds: float = 1.0
    retry_seconds: float = 2.0
    """Until the plugin looks again for an MPS daemon that does not answer, and that daemon for GPUs that refuse."""
    backoff_seconds: tuple[float, ...] = (1.0, 8.0, 16.0, 32.0)
    """Before an ended program is started again, the last one repeated."""


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
        timings: Timings | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self.processes = Processes(proc_of(machine))
        self._api, self._clock, self._timings = api, clock, timings or Timings()
        self._kubelet_dir, self._mps_root, self._machine = kubelet_dir, mps_root, machine
        self._numbers = itertools.count(1)
        self._names: dict[str, str] = {}
        """Of the newest pods, by the DaemonSet's name."""
        self._pods: dict[str, Pod] = {}
        self._data: Mapping[str, str] = {}
        self._labels: Mapping[str, str] = {}
        self._warned = False
        self._lock = threading.Lock()
        self._loop = Loop(f"nvidia {name}")

    def start(self) -> None:
        self._loop.post(self._run)
        self._loop.start()

    def stop(self) -> None:
        """End everything."""
        self._loop.stop(join_seconds=30.0)
        for pod in self._pods.values():
            pod.program.terminate(self._clock())

    def pod(self, daemon_set: DaemonSet) -> Pod | None:
        """None while it does not run."""
        return self._pods.get(daemon_set.name)

    def delete(self, daemon_set: DaemonSet) -> None:
        """As kubectl delete pod does."""
        apply.delete(self._api, self._path(self._names[daemon_set.name]))

    def step(self) -> None:
        """Everything that is due now."""
        with self._lock:
            data = self._config_map()
            if data is None and not self._pods:
                return
            node = apply.get(self._api, paths.node(self.name))
            label = (node["metadata"].get("labels") or {}).get(CONFIG_LABEL, "")
            now = self._clock()
            for daemon_set in DAEMON_SETS:
                self._follow(daemon_set, self._scheduled(daemon_set, node), now)
            self._project(self._data if data is None else data, now)
            for pod in self._pods.values():
                pod.step(now, label, self._timings.backoff_seconds)
            self._hear()
            self._discover(now)

    def heard(self, daemon_set: DaemonSet) -> None:
        """Another program than its sidecar has sent SIGHUP."""
        self._pods[daemon_set.name].program.sighup(self._clock())

    def signal(self, daemon_set: DaemonSet) -> str | None:
        """Its sidecar sends SIGHUP; returns why it cannot."""
        pod = self._pods[daemon_set.name]
        if daemon_set is MPS_DAEMON or not pod.program.running:
            return NO_PROCESS
        pod.program.sighup(self._clock())
        return None

    def _run(self) -> None:
        self._loop.after(STEP_SECONDS, self._run)
        with contextlib.suppress(ApiError):
            self.step()

    def _config_map(self) -> Mapping[str, str] | None:
        """None where there is none, and once a word about it: containers do not start without it."""
        try:
            return apply.get(self._api, paths.config_map(NAMESPACE, CONFIG_MAP)).get("data") or {}
        except NotFound:
            if not self._warned:
                what = f"ConfigMap {CONFIG_MAP} in namespace {NAMESPACE}"
                log.warning("node %s: NVIDIA's device plugin waits for %s: create it", self.name, what)
            self._warned = True
            return None

    def _path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods{name and f'/{name}'}"

    def _scheduled(self, daemon_set: DaemonSet, node: Raw) -> Raw | None:
        """Create or delete its pod where that is due; returns the one that is there."""
        try:
            raw: Raw = apply.get(self._api, self._path(self._names.get(daemon_set.name, "none")))
        except NotFound:
            if not daemon_set.belongs_on(node) or keeps_off(node):
                return None
            name = self._names[daemon_set.name] = f"{daemon_set.name}-{self.name}-{next(self._numbers)}"
            return apply.create(self._api, self._path(), daemon_set.manifest(name, self.name, CONFIG_MAP))
        if not daemon_set.belongs_on(node) and not raw["metadata"].get("deletionTimestamp"):
            apply.delete(self._api, self._path(raw["metadata"]["name"]))
        return raw

    def _follow(self, daemon_set: DaemonSet, raw: Raw | None, now: float) -> None:
        """Bring the node's disk and processes in line with the pod of the API."""
        ends = raw is None or bool(raw["metadata"].get("deletionTimestamp"))
        pod = self._pods.get(daemon_set.name)
        if pod is not None and (ends or raw is None or raw["metadata"]["uid"] != pod.uid):
            pod.manager.stop()
            pod.program.terminate(now)
            if not pod.program.running:  # a daemon waits for its clients
                del self._pods[daemon_set.name]
                shutil.rmtree(pod.folder)
        if ends or raw is None or daemon_set.name in self._pods:
            return
        if (raw.get("status") or {}).get("phase") == "Running":
            program, signal = partial(self._program, daemon_set), partial(self.signal, daemon_set)
            made = self._pods[daemon_set.name] = Pod(raw["metadata"]["uid"], self._kubelet_dir, program, signal)
            made.due.append((0.0, self._data))

    def _program(self, daemon_set: DaemonSet, read: Callable[[], str]) -> Program:
        timings = self._timings
        if daemon_set is MPS_DAEMON:
            return MpsControlDaemon(self._machine, read, self._mps_root, timings.retry_seconds)
        if daemon_set is DISCOVERY:
            return FeatureDiscovery(self._machine, read, timings.discovery_seconds)
        return NvidiaDevicePlugin(self._machine, read, self._kubelet_dir, self._mps_root, timings.retry_seconds)

    def _project(self, data: Mapping[str, str], now: float) -> None:
        if data != self._data:
            self._data = data
            for number, pod in enumerate(self._pods.values(), start=1):
                pod.due.append((now + number * self._timings.projection_seconds, data))

    def _hear(self) -> None:
        there = {daemon_set.program: daemon_set for daemon_set in DAEMON_SETS if daemon_set.name in self._pods}
        for program in self.processes.show({p: self._pods[d.name].uid for p, d in there.items()}):
            self.heard(there[program])

    def _discover(self, now: float) -> None:
        pod = self._pods.get(DISCOVERY.name)
        labels = pod.program.labels(now) if pod and isinstance(pod.program, FeatureDiscovery) else {}
        if labels and labels != self._labels:
            gone = dict.fromkeys(self._labels.keys() - labels.keys())
            apply.merge_patch(self._api, paths.node(self.name), {"metadata": {"labels": {**gone, **labels}}})
            self._labels = labels

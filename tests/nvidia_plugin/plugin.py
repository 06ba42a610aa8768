"""Stands in for NVIDIA's device plugin v0.20.0 as a process: its config, its sockets, its answers to the kubelet.

Takes the kubelet's folder, the machine, the MPS root and how to read its config file; `start`, `hang_up` and
`terminate` are its start and its signals, `step` lets time pass. It reads the config at a start, on SIGHUP, when the
kubelet makes its socket again and at its own retry, never because the file changed, and each time first takes every
resource off the node. With MPS it serves nothing until the daemon answers. Must never keep a resource at a bad config.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api.paths import KubeletPaths
from tests.nvidia_plugin.config_file import MPS, BadConfig, Config, parse
from tests.nvidia_plugin.gpus import device_ids, gpus
from tests.nvidia_plugin.mps_daemon import RETRY_SECONDS, ControlFailed, tell
from tests.sandbox.kubelet.fakes import FakePlugin

ENUMERATION_SECONDS = 0.5
"""From the end of its sockets to the next ones: a plugin that registers before the kubelet has seen the end of its old
stream loses the new one, as a real kubelet does, too; NVIDIA's reads all GPUs in between."""
INSIDE = Path("/mps")
"""Where the MPS root lies in containers."""


class Served(FakePlugin):
    """One resource on one socket."""

    def __init__(self, plugin_dir: Path, resource: str, ids: Sequence[str], config: Config, mps_root: Path) -> None:
        super().__init__(plugin_dir, resource, f"nvidia-{resource.partition('/')[2]}.sock")
        self.options = api.DevicePluginOptions(get_preferred_allocation_available=True)
        self.offer(*ids)
        self.ids = tuple(ids)
        self.preference = self._spread
        self.answer = self._answer
        self._config, self._mps_root = config, mps_root

    def Allocate(  # noqa: N802 - the name in the proto
        self, request: api.AllocateRequest, context: grpc.ServicerContext
    ) -> api.AllocateResponse:
        for container in request.container_requests:
            problem = self._refusal(list(container.devices_ids))
            if problem:
                invalid = f'invalid allocation request for "{self.resource}": invalid request: {problem}'
                context.abort(grpc.StatusCode.UNKNOWN, invalid)
        return super().Allocate(request, context)

    def _refusal(self, ids: list[str]) -> str:
        unknown = [device_id for device_id in ids if device_id not in self.ids]
        if unknown:
            return f"unknown device: {unknown[0]}"
        if self._config.one_per_request and len(ids) > 1 and any("::" in device_id for device_id in ids):
            return f"maximum request size for shared resources is 1; found {len(ids)}"
        return ""

    def _spread(self, available: list[str], size: int) -> list[str]:
        """One after the other of the GPU with the fewest replicas in use."""
        free = sorted(available)
        total = Counter(_gpu(device_id) for device_id in self.ids)
        chosen: list[str] = []
        for _ in range(size):
            left = Counter(_gpu(device_id) for device_id in free)
            first = min(free, key=lambda one: (total[_gpu(one)] - left[_gpu(one)], _gpu(one), one))
            chosen.append(first)
            free.remove(first)
        return chosen

    def _answer(self, ids: list[str]) -> api.ContainerAllocateResponse:
        answer = api.ContainerAllocateResponse(
            envs={"NVIDIA_VISIBLE_DEVICES": ",".join(dict.fromkeys(_gpu(device_id) for device_id in ids))}
        )
        if self._config.strategy == MPS:
            pipe = Path(self.resource) / "pipe"
            answer.envs["CUDA_MPS_PIPE_DIRECTORY"] = str(INSIDE / pipe)
            answer.mounts.add(container_path=str(INSIDE / pipe), host_path=str(self._mps_root / pipe))
            answer.mounts.add(container_path="/dev/shm", host_path=str(self._mps_root / "shm"))
        return answer


def _gpu(device_id: str) -> str:
    return device_id.partition("::")[0]


class NvidiaDevicePlugin:
    """One process."""

    def __init__(self, kubelet_dir: Path, mps_root: Path, machine: Path, read: Callable[[], str]) -> None:
        self.running = False
        self.ended: str | None = None
        """Why it exited 1."""
        self.loads = 0
        """How often it has read its config."""
        self._paths, self._mps_root, self._machine, self._read = KubeletPaths(kubelet_dir), mps_root, machine, read
        self._served: list[Served] = []
        self._retry_at: float | None = None
        self._kubelet: int | None = None

    def start(self, now: float) -> None:
        self.running, self.ended = True, None
        self._load(now)

    def hang_up(self, now: float) -> None:
        """SIGHUP."""
        if self.running:
            self._stop()
            self._retry_at = now + ENUMERATION_SECONDS

    def terminate(self, now: float) -> None:
        """SIGTERM: sockets are removed."""
        self._stop()
        self.running = False

    def step(self, now: float) -> None:
        """Do what is due."""
        if not self.running:
            return
        due = self._retry_at is not None and now >= self._retry_at
        if due or (self._socket() not in (None, self._kubelet)):
            self._load(now)

    @property
    def resources(self) -> dict[str, tuple[str, ...]]:
        """What it serves now."""
        return {served.resource: served.ids for served in self._served}

    def _load(self, now: float) -> None:
        self._stop()
        self.loads += 1
        self._retry_at, self._kubelet = None, self._socket()
        try:
            text = self._read()
            config = parse(text)
            planned = device_ids(config, gpus(self._machine))
        except (OSError, BadConfig) as bad:
            self.running = False
            self.ended = f"error starting plugins: unable to load config: {bad}"
            return
        for resource, ids in planned.items():
            served = Served(self._paths.plugin_dir, resource, ids, config, self._mps_root)
            try:
                if config.strategy == MPS:
                    tell(self._mps_root / resource / "pipe", command="get_default_active_thread_percentage")
                served.serve()
                self._served.append(served)
                served.register()
            except (ControlFailed, grpc.RpcError):
                self._retry_at = now + RETRY_SECONDS
                self._stop_one(served)
                return

    def _stop(self) -> None:
        for served in list(self._served):
            self._stop_one(served)

    def _stop_one(self, served: Served) -> None:
        served.stop()
        served.socket.unlink(missing_ok=True)
        with contextlib.suppress(ValueError):
            self._served.remove(served)

    def _socket(self) -> int | None:
        try:
            return self._paths.registration_socket.stat().st_ctime_ns
        except FileNotFoundError:
            return None

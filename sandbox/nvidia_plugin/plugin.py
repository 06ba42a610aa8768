"""Stands in for NVIDIA's device plugin v0.20.0 at a kubelet.

Takes the kubelet's directory and the root of the MPS daemon besides; `step` lets time pass. As the real program it
reads its config at a start and on SIGHUP only, takes everything off before it does, ends on a config that it refuses,
registers again with a new kubelet, and offers replicas only while their MPS daemon answers, which it asks once.
Must never read its config by itself.
"""

import contextlib
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from kube.kubelet_api.paths import DEVICE_PLUGIN_VERSION, HEALTHY, KubeletPaths, unix_target
from sandbox.kubelet.sockets import SocketServer
from sandbox.nvidia_plugin.config_file import MPS, BadConfig, Config
from sandbox.nvidia_plugin.devices import MIXED, NONE, SINGLE, Device, devices_of
from sandbox.nvidia_plugin.mps_daemon import ControlFailed, tell
from sandbox.nvidia_plugin.programs import RETRY_SECONDS, Program

ENUMERATION_SECONDS = 0.5
"""From the end of its sockets to the next ones: a plugin that registers before the kubelet has seen the end of its old
stream loses the new one, as a real kubelet does, too; NVIDIA's reads all GPUs in between."""
REGISTER_SECONDS, END_SECONDS = 20.0, 2.0
VISIBLE, AS_MOUNTS = "NVIDIA_VISIBLE_DEVICES", "/var/run/nvidia-container-devices"
INSIDE = Path("/mps")
"""Where the MPS root lies in containers."""
FLAGS = "unable to validate flags: "
PLUGINS = "error getting plugins: unable to create plugins: "
Context = grpc.ServicerContext


class Served(services.DevicePluginServicer):
    """One resource on one socket."""

    def __init__(
        self,
        plugin_dir: Path,
        resource: str,
        devices: tuple[Device, ...],
        config: Config,
        mps_root: Path,
        *,
        load: int = 0,
    ) -> None:
        self.resource, self._devices = resource, {device.id: device for device in devices}
        self.ids = tuple(self._devices)
        self._load = load
        self._config, self._mps_root = config, mps_root
        self._socket = plugin_dir / f"nvidia-{resource.partition('/')[2]}.sock"
        self._over = threading.Event()
        self._options = api.DevicePluginOptions(get_preferred_allocation_available=True)
        hidden = plugin_dir / f".{self._socket.name}"
        self._server = SocketServer(hidden, self._socket, self._add, threads=8)

    def serve(self) -> None:
        """Raises grpc.RpcError where the kubelet refuses."""
        self._server.start()
        kubelet = unix_target(self._socket.parent / "kubelet.sock")
        with grpc.insecure_channel(kubelet, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            request = api.RegisterRequest(
                version=DEVICE_PLUGIN_VERSION,
                endpoint=self._socket.name,
                resource_name=self.resource,
                options=self._options,
            )
            services.RegistrationStub(channel).Register(request, timeout=REGISTER_SECONDS, wait_for_ready=True)

    def stop(self) -> None:
        """Streams end first: a kubelet that is cut off has its library print that."""
        self._over.set()
        self._server.stop(END_SECONDS)
        self._socket.unlink(missing_ok=True)

    def _add(self, server: grpc.Server) -> None:
        services.add_DevicePluginServicer_to_server(self, server)

    def GetDevicePluginOptions(self, _request: api.Empty, _: Context) -> api.DevicePluginOptions:  # noqa: N802
        return self._options

    def ListAndWatch(self, _request: api.Empty, _: Context) -> Iterator[api.ListAndWatchResponse]:  # noqa: N802
        topology = api.TopologyInfo(nodes=[api.NUMANode(ID=0)])
        ids = sorted(self.ids, key=lambda one: _order(self._load, one))
        devices = [api.Device(ID=device_id, health=HEALTHY, topology=topology) for device_id in ids]
        yield api.ListAndWatchResponse(devices=devices)
        self._over.wait()

    def GetPreferredAllocation(  # noqa: N802 - the name in the proto
        self, request: api.PreferredAllocationRequest, _: Context
    ) -> api.PreferredAllocationResponse:
        asked = request.container_requests[0]
        chosen = self._spread(list(asked.available_deviceIDs), asked.allocation_size)
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=chosen)
        return api.PreferredAllocationResponse(container_responses=[answer])

    def Allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:  # noqa: N802
        for container in request.container_requests:
            if problem := self._refusal(list(container.devices_ids)):
                invalid = f'invalid allocation request for "{self.resource}": invalid request: {problem}'
                context.abort(grpc.StatusCode.UNKNOWN, invalid)
        answers = [self._answer(list(container.devices_ids)) for container in request.container_requests]
        return api.AllocateResponse(container_responses=answers)

    def _refusal(self, ids: list[str]) -> str:
        if unknown := [device_id for device_id in ids if device_id not in self.ids]:
            return f"unknown device: {unknown[0]}"
        if self._config.one_per_request and len(ids) > 1 and any("::" in device_id for device_id in ids):
            return f"maximum request size for shared resources is 1; found {len(ids)}"
        return ""

    def _spread(self, available: list[str], size: int) -> list[str]:
        """One after the other of the GPU with the fewest replicas in use; of several such, of any."""
        free, chosen = list(available), list[str]()
        total = Counter(map(_gpu, self.ids))
        for _ in range(size):
            left = Counter(map(_gpu, free))
            chosen.append(min(free, key=lambda one: (total[_gpu(one)] - left[_gpu(one)], _order(self._load, one))))
            free.remove(chosen[-1])
        return chosen

    def _answer(self, ids: list[str]) -> api.ContainerAllocateResponse:
        config = self._config
        once = {device.uuid: device for device in map(self._devices.__getitem__, ids)}
        names = [device.index if config.by_index else uuid for uuid, device in once.items()]
        answer = api.ContainerAllocateResponse(envs={f"NVIDIA_{extra}": "enabled" for extra in config.extras})
        if config.strategy == MPS:
            pipe = Path(self.resource) / "pipe"
            answer.envs["CUDA_MPS_PIPE_DIRECTORY"] = str(INSIDE / pipe)
            answer.mounts.add(container_path=str(INSIDE / pipe), host_path=str(self._mps_root / pipe))
            answer.mounts.add(container_path="/dev/shm", host_path=str(self._mps_root / "shm"))
        if "envvar" in config.device_list:
            answer.envs[VISIBLE] = ",".join(names)
        if "volume-mounts" in config.device_list:
            answer.envs[VISIBLE] = AS_MOUNTS
            for name in names:
                answer.mounts.add(container_path=f"{AS_MOUNTS}/{name}", host_path="/dev/null")
        for path in dict.fromkeys(path for device in once.values() for path in device.paths):
            if config.device_nodes:
                answer.devices.add(container_path=path, host_path=path, permissions="rw")
        return answer


def _order(load: int, device_id: str) -> int:
    """Another one at each load, as the real program's is a map's."""
    return zlib.crc32(f"{load} {device_id}".encode())


def _gpu(device_id: str) -> str:
    return device_id.partition("::")[0]


@dataclass(eq=False)
class NvidiaDevicePlugin(Program):
    """One process."""

    kubelet_dir: Path
    mps_root: Path
    retry_seconds: float = RETRY_SECONDS
    loads: int = field(default=0, init=False)
    """How often it has read its config."""
    _served: list[Served] = field(default_factory=list, init=False)
    _retry_at: float | None = field(default=None, init=False)
    _kubelet: int | None = field(default=None, init=False)

    def sighup(self, now: float) -> None:
        if self.running:
            self._stop()
            self._retry_at = now + ENUMERATION_SECONDS

    def terminate(self, now: float) -> None:
        """Sockets are removed."""
        self._stop()
        super().terminate(now)

    def step(self, now: float) -> None:
        due = self._retry_at is not None and now >= self._retry_at
        if self.running and (due or self._kubelet_socket() not in (None, self._kubelet)):
            self.load(now)

    @property
    def resources(self) -> dict[str, tuple[str, ...]]:
        """What it serves now."""
        return {served.resource: served.ids for served in self._served}

    def load(self, now: float) -> None:
        self._stop()
        self.loads += 1
        self._retry_at, self._kubelet = None, self._kubelet_socket()
        try:
            config = self.config()
            planned = self._planned(config)
        except BadConfig as bad:
            self.end(f"error starting plugins: {bad}")
            return
        for resource, devices in planned.items():
            place = self._paths.plugin_dir
            served = Served(place, resource, devices, config, self.mps_root, load=self.loads)
            try:
                if config.strategy == MPS:
                    tell(self.mps_root / resource / "pipe", command="get_default_active_thread_percentage")
                served.serve()
            except (ControlFailed, grpc.RpcError):
                self._retry_at = now + self.retry_seconds
                served.stop()
                return
            self._served.append(served)

    def _planned(self, config: Config) -> dict[str, tuple[Device, ...]]:
        """By resource; raises BadConfig."""
        if config.strategy == MPS and config.mig_strategy == MIXED:
            raise BadConfig(f"{FLAGS}using --mig-strategy=mixed is not supported with MPS")
        if config.mig_strategy not in (NONE, SINGLE, MIXED):
            raise BadConfig(f"{FLAGS}unknown MIG strategy: {config.mig_strategy}")
        try:
            planned = devices_of(config, self.gpus)
        except BadConfig as bad:
            raise BadConfig(f"{PLUGINS}failed to construct resource managers: {bad}") from bad
        if config.strategy == MPS and any(device.mig for devices in planned.values() for device in devices):
            raise BadConfig(f"{PLUGINS}failed to create plugin: sharing using MPS is not supported for MIG devices")
        return planned

    def _stop(self) -> None:
        while self._served:
            self._served.pop().stop()

    @property
    def _paths(self) -> KubeletPaths:
        return KubeletPaths(self.kubelet_dir)

    def _kubelet_socket(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return self._paths.registration_socket.stat().st_ctime_ns
        return None

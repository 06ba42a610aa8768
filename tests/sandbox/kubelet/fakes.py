"""Fakes a device plugin and the hardware under containers, and waits for conditions.

Records what the kubelet called. The plugin speaks real gRPC on a socket; neither decides anything by itself.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from kube.kubelet_api.paths import unix_target
from sandbox.kubelet.runtime import ContainerHooks, ContainerRecord

DEADLINE_SECONDS = 20.0


class RecordingHooks(ContainerHooks):
    """Hardware that notes who came and went, and refuses starts while `refusal` is set."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ContainerRecord]] = []
        self.refusal: str | None = None

    def container_started(self, container: ContainerRecord) -> str | None:
        if self.refusal is None:
            self.calls.append(("started", container))
        return self.refusal

    def container_stopped(self, container: ContainerRecord) -> None:
        self.calls.append(("stopped", container))


INVALID_NAMES = (
    "gpu",
    "kubernetes.io/x",
    "node.kubernetes.io/x",
    "requests.nvidia.com/x",
    "nvidia.com/",
    "a/b/c",
    "NVIDIA.com/gpu",
    f"nvidia.com/{'x' * 64}",
    "nvidia.com/mig-1g.10gb+me",
)
"""Of resources that the kubelet takes from no device plugin."""


class FakePlugin(services.DevicePluginServicer):
    """One device plugin on one socket. `push` reaches all open streams, `push_to` one."""

    def __init__(self, plugin_dir: Path, resource: str, socket_name: str = "") -> None:
        self.resource = resource
        self.socket = plugin_dir / (socket_name or f"{resource.rpartition('/')[2]}.sock")
        self.options = api.DevicePluginOptions()
        self.devices: list[api.Device] = []
        self.allocated: list[list[str]] = []
        self.preferred_requests: list[tuple[set[str], set[str], int]] = []
        self.pre_started: list[list[str]] = []
        self.env: dict[str, str] = {}
        self.answer: Callable[[list[str]], api.ContainerAllocateResponse | None] = self._default_answer
        self.preference: Callable[[list[str], int], list[str]] = lambda available, size: available[:size]
        self.allocate_error: str = ""
        self.pre_start_error: str = ""
        self.may_allocate = threading.Event()
        self.may_allocate.set()
        self.may_pre_start = threading.Event()
        self.may_pre_start.set()
        self.allocating = threading.Event()
        self.ended_streams = 0
        self.streams: list[SimpleQueue[list[api.Device] | None]] = []
        self._server: grpc.Server | None = None

    def serve(self) -> "FakePlugin":
        self._end_server()  # first, for it would remove the new socket, which has the same path
        self.socket.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(8))
        services.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(unix_target(self.socket))
        self._server.start()
        return self

    def stop(self) -> None:
        self.may_allocate.set()
        self.may_pre_start.set()
        self._end_server()

    def _end_server(self) -> None:
        for stream in self.streams:
            stream.put(None)
        if self._server is not None:
            self._server.stop(None).wait(5)

    def register(self, **changes: str) -> None:
        """Raises grpc.RpcError with the kubelet's refusal."""
        request = {"version": "v1beta1", "endpoint": self.socket.name, "resource_name": self.resource, **changes}
        kubelet = self.socket.parent / "kubelet.sock"
        with grpc.insecure_channel(unix_target(kubelet), options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            stub = services.RegistrationStub(channel)
            stub.Register(
                api.RegisterRequest(
                    version=request["version"],
                    endpoint=request["endpoint"],
                    resource_name=request["resource_name"],
                    options=api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True),
                ),
                timeout=DEADLINE_SECONDS,
                wait_for_ready=True,
            )

    def offer(self, *ids: str, unhealthy: tuple[str, ...] = ()) -> "FakePlugin":
        """What new streams start with; push it to open ones with `push`."""
        self.devices = [api.Device(ID=device_id, health="Healthy") for device_id in ids]
        self.devices += [api.Device(ID=device_id, health="Unhealthy") for device_id in unhealthy]
        return self

    def push(self) -> None:
        for stream in self.streams:
            stream.put(list(self.devices))

    def push_to(self, stream: int, *ids: str) -> None:
        self.streams[stream].put([api.Device(ID=device_id, health="Healthy") for device_id in ids])

    def end_stream(self, stream: int) -> None:
        self.streams[stream].put(None)

    def GetDevicePluginOptions(  # noqa: N802 - the name in the proto
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> api.DevicePluginOptions:
        return self.options

    def ListAndWatch(  # noqa: N802 - the name in the proto
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> Iterator[api.ListAndWatchResponse]:
        stream: SimpleQueue[list[api.Device] | None] = SimpleQueue()
        context.add_callback(lambda: self._ended(stream))
        self.streams.append(stream)
        yield api.ListAndWatchResponse(devices=self.devices)
        while (devices := stream.get()) is not None:
            yield api.ListAndWatchResponse(devices=devices)

    def _ended(self, stream: SimpleQueue[list[api.Device] | None]) -> None:
        self.ended_streams += 1
        stream.put(None)

    def GetPreferredAllocation(  # noqa: N802 - the name in the proto
        self, request: api.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> api.PreferredAllocationResponse:
        asked = request.container_requests[0]
        available = list(asked.available_deviceIDs)
        self.preferred_requests.append((set(available), set(asked.must_include_deviceIDs), asked.allocation_size))
        ids = self.preference(available, asked.allocation_size)
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=ids)
        return api.PreferredAllocationResponse(container_responses=[answer])

    def Allocate(  # noqa: N802 - the name in the proto
        self, request: api.AllocateRequest, context: grpc.ServicerContext
    ) -> api.AllocateResponse:
        assert len(request.container_requests) == 1
        ids = list(request.container_requests[0].devices_ids)
        self.allocated.append(ids)
        self.allocating.set()
        assert self.may_allocate.wait(DEADLINE_SECONDS)
        if self.allocate_error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.allocate_error)
        answer = self.answer(ids)
        return api.AllocateResponse(container_responses=[answer] if answer else [])

    def PreStartContainer(  # noqa: N802 - the name in the proto
        self, request: api.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> api.PreStartContainerResponse:
        self.pre_started.append(list(request.devices_ids))
        assert self.may_pre_start.wait(DEADLINE_SECONDS)
        if self.pre_start_error:
            context.abort(grpc.StatusCode.UNAVAILABLE, self.pre_start_error)
        return api.PreStartContainerResponse()

    def _default_answer(self, ids: list[str]) -> api.ContainerAllocateResponse:
        return api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(ids)), **self.env})


class BrokenStream(FakePlugin):
    def ListAndWatch(  # noqa: N802 - the name in the proto
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> Iterator[api.ListAndWatchResponse]:
        context.abort(grpc.StatusCode.INTERNAL, "no devices here")
        raise AssertionError


class WithoutOptions(FakePlugin):
    """Of a time before the kubelet asked for options."""

    def GetDevicePluginOptions(  # noqa: N802 - the name in the proto
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> api.DevicePluginOptions:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        raise AssertionError

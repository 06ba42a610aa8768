"""Serves Registration, and calls the registered device plugins.

Takes Register calls, connects to the plugin's socket, follows its ListAndWatch into the device table and reports
`changed(resource)` after each list. Failures are a `Refusal` in Go's words, which users see in pod messages. The
options in the request are ignored; only the plugin's own answer counts. Two streams of one resource can be open at
once: the end of either closes the newest one. Never redials.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from kube.kubelet_api.paths import DEVICE_PLUGIN_VERSION, HEALTHY, unix_target
from sandbox.kubelet.devices import Device, DeviceTable
from sandbox.kubelet.pods import is_extended_resource
from sandbox.kubelet.selection import Refusal, Wanted

Answer = TypeVar("Answer")
PRE_START_SECONDS = 30.0
"""The kubelet's deadline for a PreStartContainer."""


class PluginClient:
    """One registration: a channel of its own, its ListAndWatch stream, and the calls of the device plugin API."""

    def __init__(self, resource: str, socket: Path) -> None:
        self.resource = resource
        self.stopped = False
        self.options = api.DevicePluginOptions()
        # A shared subchannel would hand the dial back-off of a dead socket on to the next plugin at the same path.
        self._channel = grpc.insecure_channel(unix_target(socket), options=(("grpc.use_local_subchannel_pool", 1),))
        self._stub = services.DevicePluginStub(self._channel)

    def connect(self, dial_timeout_seconds: float) -> Refusal | None:
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=dial_timeout_seconds)
        except grpc.FutureTimeoutError:
            return Refusal("failed to dial device plugin: context deadline exceeded")
        finally:
            ready.cancel()
        try:
            self.options = self._stub.GetDevicePluginOptions(api.Empty())
        except grpc.RpcError as error:
            return Refusal(f"failed to get device plugin options: {go_text(error)}")
        return None

    def watch(self, on_list: Callable[[tuple[Device, ...]], None]) -> None:
        """Hand on each list until the stream is over, however that comes."""
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: the channel was closed before the call
            for message in self._stub.ListAndWatch(api.Empty()):
                on_list(tuple(Device(device_id=raw.ID, healthy=raw.health == HEALTHY) for raw in message.devices))

    def allocate(self, device_ids: Iterable[str]) -> api.AllocateResponse | Refusal:
        wanted = api.ContainerAllocateRequest(devices_ids=list(device_ids))
        return self._ask("", lambda: self._stub.Allocate(api.AllocateRequest(container_requests=[wanted])))

    def preferred(self, wanted: Wanted) -> list[str] | Refusal:
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted(wanted.available),
            must_include_deviceIDs=sorted(wanted.must_include),
            allocation_size=wanted.size,
        )
        answer = self._ask(
            "device plugin GetPreferredAllocation rpc failed with err: ",
            lambda: self._stub.GetPreferredAllocation(api.PreferredAllocationRequest(container_requests=[request])),
        )
        if isinstance(answer, Refusal):
            return answer
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    def pre_start(self, device_ids: Iterable[str]) -> Refusal | None:
        request = api.PreStartContainerRequest(devices_ids=sorted(device_ids))
        what = "device plugin PreStartContainer rpc failed with err: "
        answer = self._ask(what, lambda: self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS))
        return answer if isinstance(answer, Refusal) else None

    def _ask(self, what: str, call: Callable[[], Answer]) -> Answer | Refusal:
        if self.stopped:
            return Refusal(f"endpoint &{{{self.resource}}} has been stopped")
        try:
            return call()
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed before the call
            return Refusal(f"{what}{go_text(error)}")

    def close(self) -> None:
        self._channel.close()


Endpoints = dict[str, PluginClient | None]
"""The newest client of each resource. A restart puts None: known, but its plugin has not come back yet."""


def go_text(error: object) -> str:
    """An RPC error as Go prints it; anything else means that our own side closed the channel."""
    if not isinstance(error, grpc.Call):
        return "rpc error: code = Canceled desc = grpc: the client connection is closing"
    name = error.code().name.title().replace("_", "")
    return f"rpc error: code = {'Canceled' if name == 'Cancelled' else name} desc = {error.details()}"


@dataclass(eq=False, kw_only=True)
class Registration(services.RegistrationServicer):
    plugin_dir: Path
    table: DeviceTable
    endpoints: Endpoints
    dial_timeout_seconds: float
    changed: Callable[[str], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _newest: dict[str, PluginClient] = field(default_factory=dict)
    _open: list[PluginClient] = field(default_factory=list)
    _closed: bool = False

    def Register(  # noqa: N802 - the name in the proto
        self, request: api.RegisterRequest, context: grpc.ServicerContext
    ) -> api.Empty:
        problem = check(request)
        if problem:
            context.abort(grpc.StatusCode.UNKNOWN, problem)
        resource = request.resource_name
        # Joined as text: an absolute endpoint ends up below the plugin directory too, and is not found there.
        client = PluginClient(resource, Path(f"{self.plugin_dir}/{request.endpoint}"))
        with self._lock:
            self._newest[resource] = client
            self._open.append(client)
        refusal = client.connect(self.dial_timeout_seconds)
        if refusal is not None:
            with self._lock:
                self._newest.pop(resource, None)
            self._drop(client)
            context.abort(grpc.StatusCode.UNKNOWN, refusal.message)
        self.endpoints[resource] = client
        self.table.connected(resource)
        self._after_answer(context, client)
        return api.Empty()

    def _after_answer(self, context: grpc.ServicerContext, client: PluginClient) -> None:
        thread = threading.Thread(
            target=self._follow, args=(client,), name=f"list-and-watch {client.resource}", daemon=True
        )
        if not context.add_callback(thread.start):  # the caller has gone; the kubelet goes on all the same
            thread.start()

    def _follow(self, client: PluginClient) -> None:
        def on_list(devices: tuple[Device, ...]) -> None:
            self.table.set_devices(client.resource, devices)
            self.changed(client.resource)

        client.watch(on_list)
        with self._lock:
            if self._closed:
                return
            newest = self._newest.pop(client.resource, None)
        self._drop(client)
        if newest is None:
            return
        if newest is not client:
            self._drop(newest)
        if (stopped := self.endpoints.get(client.resource)) is not None:
            stopped.stopped = True
        self.table.stopped(client.resource, time.monotonic())
        self.changed(client.resource)

    def _drop(self, client: PluginClient) -> None:
        with self._lock:
            self._open = [other for other in self._open if other is not client]
        client.close()

    def close(self) -> None:
        """The kubelet ends: all streams end with it, and nothing is concluded from that."""
        with self._lock:
            self._closed = True
            clients, self._open = self._open, []
        for client in clients:
            client.close()


def check(request: api.RegisterRequest) -> str | None:
    if request.version != DEVICE_PLUGIN_VERSION:
        return (
            f'requested API version "{request.version}" is not supported by kubelet. '
            f'Supported version is ["{DEVICE_PLUGIN_VERSION}"]'
        )
    if not is_extended_resource(request.resource_name):
        return f'the ResourceName "{request.resource_name}" is invalid'
    return None

"""The kubelet's side of one device plugin: the connection to its socket, and who is the endpoint of which resource.

In: a socket path and a resource. Out: `PluginClient` with the plugin's calls, failures as a `Refusal` in Go's words
(users see them verbatim in pod messages), and `Endpoints`, the newest client of each resource. A client never
redials: once its stream is over it is of no use.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from kube.kubelet_api.paths import HEALTHY, unix_target
from sandbox.kubelet.devices import Device
from sandbox.kubelet.selection import Refusal, Wanted


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
                on_list(tuple(_device(device) for device in message.devices))

    def allocate(self, device_ids: Iterable[str]) -> api.AllocateResponse | Refusal:
        if self.stopped:
            return Refusal(f"endpoint &{{{self.resource}}} has been stopped")
        wanted = api.ContainerAllocateRequest(devices_ids=list(device_ids))
        try:
            return self._stub.Allocate(api.AllocateRequest(container_requests=[wanted]))
        except (grpc.RpcError, ValueError) as error:
            return Refusal(go_text(error))

    def preferred(self, wanted: Wanted) -> list[str] | Refusal:
        if self.stopped:
            return Refusal(f"endpoint &{{{self.resource}}} has been stopped")
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted(wanted.available),
            must_include_deviceIDs=sorted(wanted.must_include),
            allocation_size=wanted.size,
        )
        try:
            answer = self._stub.GetPreferredAllocation(api.PreferredAllocationRequest(container_requests=[request]))
        except (grpc.RpcError, ValueError) as error:
            return Refusal(f"device plugin GetPreferredAllocation rpc failed with err: {go_text(error)}")
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    def pre_start(self, device_ids: Iterable[str], timeout_seconds: float) -> Refusal | None:
        if self.stopped:
            return Refusal(f"endpoint &{{{self.resource}}} has been stopped")
        try:
            self._stub.PreStartContainer(
                api.PreStartContainerRequest(devices_ids=list(device_ids)), timeout=timeout_seconds
            )
        except (grpc.RpcError, ValueError) as error:
            return Refusal(f"device plugin PreStartContainer rpc failed with err: {go_text(error)}")
        return None

    def close(self) -> None:
        self._channel.close()


class Endpoints:
    """The newest client of each resource. A restart puts None: known, but its plugin has not come back yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[str, PluginClient | None] = {}

    def put(self, resource: str, client: PluginClient | None) -> None:
        with self._lock:
            self._clients[resource] = client

    def stop(self, resource: str) -> None:
        client = self.get(resource)
        if client is not None:
            client.stopped = True

    def forget(self, resources: Iterable[str]) -> None:
        with self._lock:
            for resource in resources:
                self._clients.pop(resource, None)

    def known(self, resource: str) -> bool:
        with self._lock:
            return resource in self._clients

    def get(self, resource: str) -> PluginClient | None:
        with self._lock:
            return self._clients.get(resource)


def go_text(error: object) -> str:
    """An RPC error as Go prints it; anything else means that our own side closed the channel."""
    if not isinstance(error, grpc.Call):
        return "rpc error: code = Canceled desc = grpc: the client connection is closing"
    name = error.code().name.title().replace("_", "")
    return f"rpc error: code = {'Canceled' if name == 'Cancelled' else name} desc = {error.details()}"


def _device(raw: api.Device) -> Device:
    nodes = tuple(node.ID for node in raw.topology.nodes) if raw.HasField("topology") else None
    return Device(device_id=raw.ID, healthy=raw.health == HEALTHY, numa_nodes=nodes)

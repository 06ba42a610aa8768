"""A kubelet that takes every device plugin and asks it everything, for what a plugin offers and answers."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from tests.waiting import SECONDS


class Kubelet(services.RegistrationServicer):
    """Takes every registration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: grpc.Server | None = None
        self.restart()

    def restart(self) -> None:
        """A new one that knows no plugin."""
        if self._server is not None:
            self.stop()
            (self.folder / "kubelet.sock").unlink(missing_ok=True)
        self.endpoints: dict[str, str] = {}
        self._server = grpc.server(ThreadPoolExecutor(4))
        services.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self._server.start()

    def Register(self, request: api.RegisterRequest, _: grpc.ServicerContext) -> api.Empty:  # noqa: N802
        assert request.version == "v1beta1"
        assert request.options.get_preferred_allocation_available
        self.endpoints[request.resource_name] = request.endpoint
        return api.Empty()

    def offers(self) -> dict[str, Any]:
        """What each resource with a socket offers and answers. Raises grpc.RpcError where a plugin goes meanwhile."""
        served = {name: self.folder / endpoint for name, endpoint in self.endpoints.items()}
        return {name: _asked(socket) for name, socket in sorted(served.items()) if socket.exists()}

    def stop(self) -> None:
        assert self._server is not None
        self._server.stop(0).wait()


def _asked(socket: Path) -> dict[str, Any]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        stub = services.DevicePluginStub(channel)
        listed = next(iter(stub.ListAndWatch(api.Empty(), timeout=SECONDS)))
        devices = {device.ID: device for device in listed.devices}
        ids = sorted(devices)
        asks = {"one": ids[:1], "two": ids[:2], "none": [], "unknown": [ids[0], "unknown"]}
        return {
            "socket": socket.name,
            "devices": ids,
            "health": sorted({device.health for device in devices.values()}),
            "nodes": sorted({node.ID for device in devices.values() for node in device.topology.nodes}),
            "options": MessageToDict(stub.GetDevicePluginOptions(api.Empty())),
            "allocate": {name: _allocated(stub, ask) for name, ask in asks.items()},
            "prefers": _preferred(stub, ids),
        }


def _allocated(stub: services.DevicePluginStub, ids: Sequence[str]) -> Any:
    asked = api.ContainerAllocateRequest(devices_ids=ids)
    try:
        answer = stub.Allocate(api.AllocateRequest(container_requests=[asked]), timeout=SECONDS)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    (container,) = (MessageToDict(one, preserving_proto_field_name=True) for one in answer.container_responses)
    for name, value in container.get("envs", {}).items():
        container["envs"][name] = ",".join(sorted(value.split(",")))  # the order is a map's
    for entries in (container.get("mounts", []), container.get("devices", [])):
        entries.sort(key=lambda entry: entry["container_path"])
    return container


def _preferred(stub: services.DevicePluginStub, ids: Sequence[str]) -> Any:
    """On how many devices two replicas are put, not on which: that is chance."""
    if len(ids) < 2:
        return None
    asked = api.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=2)
    answer = stub.GetPreferredAllocation(api.PreferredAllocationRequest(container_requests=[asked]), timeout=SECONDS)
    return len({one.partition("::")[0] for one in answer.container_responses[0].deviceIDs})


@contextmanager
def kubelet(folder: Path) -> Iterator[Kubelet]:
    folder.mkdir(parents=True, exist_ok=True)
    made = Kubelet(folder)
    try:
        yield made
    finally:
        made.stop()

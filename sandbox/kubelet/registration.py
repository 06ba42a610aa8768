"""The Registration service of a kubelet, with the real one's order of steps.

In: Register calls of device plugins. Out: connected endpoints, device lists in the table, `changed(resource)` after
each. The options in the request are ignored; only the plugin's own answer counts. Two streams of one resource can be
open at once: the end of either closes the newest one. Never redials.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from kube.kubelet_api.paths import DEVICE_PLUGIN_VERSION
from sandbox.kubelet.clock import Clock
from sandbox.kubelet.devices import Device, DeviceTable
from sandbox.kubelet.endpoints import Endpoints, PluginClient
from sandbox.kubelet.resource_names import is_extended_resource


class Registration(services.RegistrationServicer):
    def __init__(
        self,
        *,
        plugin_dir: Path,
        table: DeviceTable,
        endpoints: Endpoints,
        dial_timeout_seconds: float,
        clock: Clock,
        changed: Callable[[str], None],
    ) -> None:
        self._plugin_dir = plugin_dir
        self._table = table
        self._endpoints = endpoints
        self._dial_timeout_seconds = dial_timeout_seconds
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._newest: dict[str, PluginClient] = {}
        self._open: list[PluginClient] = []
        self._closed = False

    def Register(  # noqa: N802 - the name in the proto
        self, request: api.RegisterRequest, context: grpc.ServicerContext
    ) -> api.Empty:
        problem = check(request)
        if problem:
            context.abort(grpc.StatusCode.UNKNOWN, problem)
        resource = request.resource_name
        # Joined as text: an absolute endpoint ends up below the plugin directory too, and is not found there.
        client = PluginClient(resource, Path(f"{self._plugin_dir}/{request.endpoint}"))
        with self._lock:
            self._newest[resource] = client
            self._open.append(client)
        refusal = client.connect(self._dial_timeout_seconds)
        if refusal is not None:
            with self._lock:
                self._newest.pop(resource, None)
            self._drop(client)
            context.abort(grpc.StatusCode.UNKNOWN, refusal.message)
        self._endpoints.put(resource, client)
        self._table.connected(resource)
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
            self._table.set_devices(client.resource, devices)
            self._changed(client.resource)

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
        self._endpoints.stop(client.resource)
        self._table.stopped(client.resource, self._clock.monotonic())
        self._changed(client.resource)

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

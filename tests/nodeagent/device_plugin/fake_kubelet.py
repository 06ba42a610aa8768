"""A small kubelet for the plugin alone, as strict as the real device manager where plugins go wrong.

It removes every socket at start, checks names and versions, requests the options inside Register, opens the stream
after its answer and never again, picks devices at random, lets the end of any stream of a resource close the newest
one, takes no path twice, and leaves a dead kubelet.sock behind. What containers hold is in its checkpoint, which it
writes at each Allocate and each list, and reads at its start: without a readable one every device is free.
"""

import contextlib
import json
import random
import re
import socket
import stat
import threading
import zlib
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kube.kubelet_api import deviceplugin_pb2 as dp
from kube.kubelet_api import deviceplugin_pb2_grpc as dp_rpc
from kube.kubelet_api import podresources_pb2 as pr
from kube.kubelet_api import podresources_pb2_grpc as pr_rpc
from kube.kubelet_api.paths import KubeletPaths, unix_target

WAIT_SECONDS = 60.0
DIAL_SECONDS = 1.0
PRE_START_SECONDS = 30.0
NAME = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
Raw = dict[str, Any]
LOCAL = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(eq=False)
class Connection:
    """One registration: a channel to the plugin and its stream."""

    resource: str
    channel: grpc.Channel
    options: dp.DevicePluginOptions
    stream: "grpc.CallIterator[dp.ListAndWatchResponse] | None" = None
    over: bool = False

    @property
    def plugin(self) -> dp_rpc.DevicePluginStub:
        return dp_rpc.DevicePluginStub(self.channel)


@dataclass
class Resource:
    devices: dict[str, str] = field(default_factory=dict)  # id -> health
    connections: list[Connection] = field(default_factory=list)
    lists: list[frozenset[str]] = field(default_factory=list)  # every list that came
    offers: list[frozenset[str]] = field(default_factory=list)  # and what was healthy in it

    @property
    def newest(self) -> Connection:
        return self.connections[-1]


class FakeKubelet(dp_rpc.RegistrationServicer, pr_rpc.PodResourcesListerServicer):
    def __init__(self, root: Path, seed: int = 1) -> None:
        self.paths = KubeletPaths(root)
        self.resources: dict[str, Resource] = {}
        self.overlaps: list[str] = []  # registrations while an older stream was open
        self.hidden: set[str] = set()  # resources that GetAllocatable leaves out
        self.foreign: dict[str, set[str]] = {}  # what another plugin shows under a resource
        self.known_paths: set[Path] = set()  # of this life: as a kubelet from 1.37 on it takes none twice
        self.opens_after_seconds = 0.0  # the stream of a registration, on a busy node
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.servers: list[grpc.Server] = []
        self.threads: list[threading.Timer] = []
        self.rows: list[Raw] = []  # of the checkpoint
        self.life = 0  # odd while a process runs: what an earlier one took up ended with it

    def start(self) -> None:
        self.paths.plugin_dir.mkdir(parents=True, exist_ok=True)
        self.paths.pod_resources_socket.parent.mkdir(parents=True, exist_ok=True)
        for entry in self.paths.plugin_dir.iterdir():
            if stat.S_ISSOCK(entry.stat().st_mode):
                entry.unlink()
        with self.lock:
            self.resources = {}
            self.rows, self.known_paths = self._load(), set()
            self.life += 1
        for path in (self.paths.pod_resources_socket, self.paths.registration_socket):
            server = grpc.server(futures.ThreadPoolExecutor(4))
            if path == self.paths.registration_socket:
                dp_rpc.add_RegistrationServicer_to_server(self, server)
            else:
                pr_rpc.add_PodResourcesListerServicer_to_server(self, server)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            server.add_insecure_port(unix_target(path))
            server.start()
            self.servers.append(server)

    def stop(self) -> None:
        with self.lock:
            self.life += 1
            connections = [c for r in self.resources.values() for c in r.connections]
        for connection in connections:
            self._close(connection)
        for server in self.servers:
            server.stop(0).wait()
        self.servers = []
        for thread in self.threads:
            thread.cancel()
            thread.join(WAIT_SECONDS)
        self.threads = []
        for path in (self.paths.pod_resources_socket, self.paths.registration_socket):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))  # the file stays, no process listens

    # --- Registration

    def Register(self, request: dp.RegisterRequest, context: grpc.ServicerContext) -> dp.Empty:  # noqa: N802 - protocol
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.UNKNOWN, f'requested API version "{request.version}" is not supported')
        if not NAME.fullmatch(request.resource_name):
            context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        endpoint, life = self.paths.plugin_dir / request.endpoint, self.life
        if endpoint in self.known_paths:
            context.abort(grpc.StatusCode.UNKNOWN, "device plugin already connected")
        self.known_paths.add(endpoint)
        channel = grpc.insecure_channel(unix_target(endpoint), options=LOCAL)
        try:
            grpc.channel_ready_future(channel).result(timeout=DIAL_SECONDS)
        except grpc.FutureTimeoutError:
            channel.close()
            context.abort(grpc.StatusCode.UNKNOWN, "failed to dial device plugin: context deadline exceeded")
        options = dp_rpc.DevicePluginStub(channel).GetDevicePluginOptions(dp.Empty())
        connection = Connection(request.resource_name, channel, options)
        with self.lock:
            if life != self.life or life % 2 == 0:
                channel.close()
                context.abort(grpc.StatusCode.UNAVAILABLE, "the kubelet has ended")
            resource = self.resources.setdefault(request.resource_name, Resource())
            if any(not known.over for known in resource.connections):
                self.overlaps.append(request.resource_name)
            resource.connections.append(connection)
        context.add_callback(lambda: self._open_stream(connection))
        return dp.Empty()

    def _open_stream(self, connection: Connection) -> None:
        thread = threading.Timer(self.opens_after_seconds, self._read, args=(connection,))
        thread.daemon = True
        self.threads.append(thread)
        thread.start()

    def _read(self, connection: Connection) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):
            connection.stream = connection.plugin.ListAndWatch(dp.Empty())
            for message in connection.stream:
                with self.lock:
                    resource = self.resources[connection.resource]
                    resource.devices = {device.ID: device.health for device in message.devices}
                    resource.lists.append(frozenset(resource.devices))
                    resource.offers.append(frozenset(self.healthy(connection.resource)))
                    self._save()
        self._close(connection)
        with self.lock:
            resource = self.resources[connection.resource]
            newest = resource.newest
            resource.devices = dict.fromkeys(resource.devices, "Unhealthy")
        if newest is not connection:
            self._close(newest)  # the end of the old one closes the new one

    def _close(self, connection: Connection) -> None:
        connection.over = True
        connection.channel.close()  # cancels its stream

    # --- what tests do and read

    def end_stream(self, resource: str) -> None:
        """As a kubelet does on its own errors."""
        self._close(self.resources[resource].newest)

    def healthy(self, resource: str) -> set[str]:
        with self.lock:
            known = self.resources.get(resource, Resource())
            return {id_ for id_, health in known.devices.items() if health == "Healthy"}

    def open_streams(self, resource: str) -> int:
        with self.lock:
            known = self.resources.get(resource, Resource())
            return sum(1 for c in known.connections if c.stream is not None and not c.over)

    def allocate(self, resource: str, count: int = 1, ids: set[str] | None = None) -> dp.ContainerAllocateResponse:
        """Admission of one container; `ids` plays a kubelet with a stale list."""
        known = self.resources[resource]
        free = sorted(self.healthy(resource) - self.held())
        chosen = sorted(ids) if ids is not None else self.random.sample(free, count)
        plugin = known.newest.plugin
        if ids is None and known.newest.options.get_preferred_allocation_available:
            wanted = dp.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
            hint = plugin.GetPreferredAllocation(dp.PreferredAllocationRequest(container_requests=[wanted]))
            liked = [id_ for id_ in hint.container_responses[0].deviceIDs if id_ in free]
            chosen = [*liked, *(id_ for id_ in chosen if id_ not in liked)][:count]
        request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=chosen)])
        answer = plugin.Allocate(request, timeout=WAIT_SECONDS)
        self.rows.append({"PodUID": f"uid-{len(self.rows)}", "ResourceName": resource, "DeviceIDs": {"-1": chosen}})
        self._save()
        (response,) = answer.container_responses
        return response

    def held(self) -> set[str]:
        return {id_ for row in self.rows for id_ in row["DeviceIDs"]["-1"]}

    def end_pods(self) -> None:
        """It forgets them in memory; the checkpoint is written with the next Allocate or list."""
        self.rows = []

    def _save(self) -> None:
        data: Raw = {"PodDeviceEntries": self.rows or None, "RegisteredDevices": {}}
        draft = self.paths.checkpoint.with_name("draft")
        with self.lock:  # a list may come meanwhile
            draft.write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(json.dumps(data).encode())}))
            draft.replace(self.paths.checkpoint)

    def _load(self) -> list[Raw]:
        try:
            content = json.loads(self.paths.checkpoint.read_text())
        except (OSError, ValueError):
            return []
        rows: list[Raw] = content["Data"]["PodDeviceEntries"] or []
        return rows if content["Checksum"] == zlib.crc32(json.dumps(content["Data"]).encode()) else []

    def pre_start(self, resource: str, *ids: str) -> None:
        known = self.resources[resource]
        assert known.newest.options.pre_start_required
        known.newest.plugin.PreStartContainer(dp.PreStartContainerRequest(devices_ids=ids), timeout=PRE_START_SECONDS)

    # --- pod-resources

    def _shown(self, resource: str) -> set[str]:
        return self.foreign.get(resource) or self.healthy(resource)

    def GetAllocatableResources(  # noqa: N802 - protocol
        self, request: pr.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pr.AllocatableResourcesResponse:
        answer = pr.AllocatableResourcesResponse()
        for resource in self.resources:
            if resource not in self.hidden:
                entries = [pr.ContainerDevices(resource_name=resource, device_ids=[i]) for i in self._shown(resource)]
                answer.devices.extend(entries)
        return answer


@contextlib.contextmanager
def running(kubelet: FakeKubelet) -> Iterator[FakeKubelet]:
    kubelet.start()
    try:
        yield kubelet
    finally:
        kubelet.stop()

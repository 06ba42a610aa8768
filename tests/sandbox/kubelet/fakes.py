"""What a kubelet stands between, as fakes: an API that keeps pods and a node in memory, and a device plugin.

In: what a test does to them. Out: what the kubelet wrote or called, recorded. Both speak the real protocols (the
plugin real gRPC on a socket); neither decides anything that a test has not told it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import grpc

from kube.kubelet_api import deviceplugin_pb2 as api
from kube.kubelet_api import deviceplugin_pb2_grpc as services
from kube.kubelet_api.paths import unix_target
from sandbox.kubelet.api import NodeChange, Outcome, PodChange, Watch
from sandbox.kubelet.containers import ContainerRecord
from sandbox.kubelet.node_status import read_node
from sandbox.kubelet.pods import Pod, parse_pod

Raw = dict[str, Any]
DEADLINE_SECONDS = 20.0


def wait_until(condition: Callable[[], object], what: str, *, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        tick.wait(0.005)


class FakeWatch:
    def __init__(self, begin: Callable[[], bool]) -> None:
        self.synced = threading.Event()
        self.stopped = False
        self._begin = begin

    def start(self) -> None:
        if self._begin():
            self.synced.set()

    def stop(self) -> None:
        self.stopped = True


class FakeApi:
    """Pods and one node. Statuses are merged as a strategic merge would: keys replace, conditions merge by type."""

    def __init__(self, node: Raw | None = None) -> None:
        self.lock = threading.RLock()
        self.node: Raw | None = node
        self.pods: dict[str, Raw] = {}
        self.events: list[tuple[str, str, str, str]] = []
        self.node_patches: list[tuple[float, Raw]] = []
        self.statuses: list[tuple[str, Raw]] = []
        self.kept_by_finalizer: set[str] = set()
        self.leases = 0
        self.refused_node_patches = 0
        self.reachable = True
        self._pod_watches: list[tuple[FakeWatch, str, PodChange]] = []
        self._node_watches: list[tuple[FakeWatch, NodeChange]] = []

    # ------------------------------------------------------------------------ the kubelet's side

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def watch_pods(self, node_name: str, on_change: PodChange) -> Watch:
        def begin() -> bool:
            with self.lock:
                self._pod_watches.append((watch, node_name, on_change))
                if not self.reachable:
                    return False
                for raw in list(self.pods.values()):
                    self._show(watch, node_name, on_change, None, raw)
                return True

        watch = FakeWatch(begin)
        return watch

    def watch_node(self, node_name: str, on_change: NodeChange) -> Watch:
        def begin() -> bool:
            with self.lock:
                self._node_watches.append((watch, on_change))
                if self.reachable and self.node is not None:
                    on_change(read_node(self.node))
                return self.reachable

        watch = FakeWatch(begin)
        return watch

    def patch_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> Outcome:
        with self.lock:
            if not self.reachable:
                return Outcome.LATER
            raw = self.pods.get(pod.uid)
            if raw is None:
                return Outcome.POINTLESS
            self.statuses.append((pod.uid, dict(status)))
            self.change(raw, status=merged(raw.get("status") or {}, status))
            return Outcome.DONE

    def delete_pod(self, pod: Pod) -> Outcome:
        with self.lock:
            if not self.reachable:
                return Outcome.LATER
            if pod.uid not in self.pods:
                return Outcome.POINTLESS
            if pod.uid not in self.kept_by_finalizer:
                self.remove(pod.uid)
            return Outcome.DONE

    def patch_node_status(self, node_name: str, patch: Mapping[str, Any]) -> Outcome:
        with self.lock:
            if not self.reachable or self.node is None:
                self.refused_node_patches += 1
                return Outcome.LATER
            self.node_patches.append((time.monotonic(), dict(patch)))
            self.change_node(patch["status"])
            return Outcome.DONE

    def renew_lease(self, node_name: str) -> Outcome:
        self.leases += 1
        return Outcome.DONE

    def emit(self, pod: Pod, event_type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        with self.lock:
            self.events.append((pod.name, event_type, reason, message))

    # --------------------------------------------------------------------------- the test's side

    def add(self, raw: Raw) -> Raw:
        with self.lock:
            self.pods[raw["metadata"]["uid"]] = raw
            self._tell(None, raw)
            return raw

    def change(self, raw: Raw, *, metadata: Raw | None = None, status: Raw | None = None) -> None:
        with self.lock:
            uid = raw["metadata"]["uid"]
            old = self.pods[uid]
            new = {**old, "metadata": {**old["metadata"], **(metadata or {})}}
            if status is not None:
                new["status"] = status
            self.pods[uid] = new
            self._tell(old, new)

    def delete(self, raw: Raw, grace_seconds: int = 30) -> None:
        """As kubectl delete: the kubelet does the rest."""
        at = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace_seconds}
        self.change(raw, metadata=at)

    def remove(self, uid: str) -> None:
        """As kubectl delete --force --grace-period=0: the object is gone at once."""
        with self.lock:
            self._tell(self.pods.pop(uid), None)

    def change_node(self, status: Mapping[str, Any]) -> None:
        with self.lock:
            assert self.node is not None
            self.node = {**self.node, "status": merged(self.node.get("status") or {}, status)}
            for watch, on_change in self._node_watches:
                if not watch.stopped:
                    on_change(read_node(self.node))

    def come_back(self) -> None:
        """The API can be reached again: watches list."""
        with self.lock:
            self.reachable = True
            for node_watch, on_node in self._node_watches:
                if not node_watch.stopped and self.node is not None:
                    on_node(read_node(self.node))
                    node_watch.synced.set()
            for watch, node_name, on_change in self._pod_watches:
                for raw in list(self.pods.values()):
                    self._show(watch, node_name, on_change, None, raw)
                watch.synced.set()

    def pod(self, raw: Raw) -> Raw:
        with self.lock:
            return self.pods[raw["metadata"]["uid"]]

    def status(self, raw: Raw) -> Raw:
        status: Raw = self.pod(raw).get("status") or {}
        return status

    def phase(self, raw: Raw) -> str:
        return str(self.status(raw).get("phase", ""))

    def allocatable(self, resource: str) -> tuple[str | None, str | None]:
        """Capacity and allocatable, as the research writes them: n/m."""
        with self.lock:
            assert self.node is not None
            status = self.node["status"]
            return (status.get("capacity") or {}).get(resource), (status.get("allocatable") or {}).get(resource)

    def node_info(self, key: str) -> str:
        with self.lock:
            assert self.node is not None
            return str((self.node["status"].get("nodeInfo") or {}).get(key, ""))

    def _tell(self, old: Raw | None, new: Raw | None) -> None:
        if self.reachable:
            for watch, node_name, on_change in self._pod_watches:
                self._show(watch, node_name, on_change, old, new)

    @staticmethod
    def _show(watch: FakeWatch, node_name: str, on_change: PodChange, old: Raw | None, new: Raw | None) -> None:
        if not watch.stopped and (new or old or {})["spec"].get("nodeName") == node_name:
            on_change(parse_pod(old) if old else None, parse_pod(new) if new else None)


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> Raw:
    result = {**old, **new}
    if "conditions" in new:
        by_type = {condition["type"]: condition for condition in old.get("conditions") or ()}
        for condition in new["conditions"]:
            both = {**by_type.get(condition["type"], {}), **condition}
            by_type[condition["type"]] = {key: value for key, value in both.items() if value is not None}
        result["conditions"] = list(by_type.values())
    return result


class RecordingHooks:
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

    # ------------------------------------------------------------------- the device plugin service

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

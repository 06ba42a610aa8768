"""Serves one resource's socket: the five methods of the device plugin API, answered from the device lists.

Takes the kubelet's calls, returns lists, answers and refusals. Allocate writes the ledger and answers at once, because
it blocks the kubelet's only sync loop; PreStartContainer, which the kubelet retries, refuses while no MPS daemon is
there, or while an earlier holder may be. Tracks its own streams, because the kubelet never opens one again by itself.
"""
# ruff: noqa: N802, ARG002 - the protocol's method names and signatures

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from kube.kubelet_api import deviceplugin_pb2 as pb
from kube.kubelet_api import deviceplugin_pb2_grpc as rpc
from kube.kubelet_api.paths import HEALTHY, MAX_SOCKET_PATH_BYTES, UNHEALTHY, unix_target
from nodeagent.device_plugin.allocate import container_answer, preferred
from nodeagent.device_plugin.device_lists import DeviceLists, RefusedAllocate
from nodeagent.device_plugin.doubts import Doubts
from nodeagent.device_plugin.ledger import Ledger
from nodeagent.device_plugin.mps_health import MpsHealth
from nodeagent.handover.config import DeviceKind

log = logging.getLogger(__name__)

WORKERS = 32  # of one socket; a stream holds one for as long as it is open
MAX_STARTING = 24  # of them, in PreStartContainer: an Allocate and the liveness probe must always find one
POLL_SECONDS = 0.1  # also for room, where many come at once, as at a node's start
UNSENT = -1
SERIAL_HEX_DIGITS = 8


def socket_name(resource: str, serial: str) -> str:
    """Short, since the whole path has 107 bytes: `gpuplan-mig-1g.10gb-0a1b2c3d.sock`."""
    domain, _, name = resource.rpartition("/")
    prefix = "" if domain == "nvidia.com" else f"{domain}-"
    return f"gpuplan-{prefix}{name}-{serial}.sock"


@dataclass(slots=True, eq=False)
class Stream:
    """One open ListAndWatch."""

    sent: int = UNSENT  # number of the last listing that left
    over: threading.Event = field(default_factory=threading.Event)


class ResourceServer(rpc.DevicePluginServicer):
    """Served by `Endpoint`; the method names are the protocol's."""

    def __init__(
        self,
        resource: str,
        *,
        lists: DeviceLists,
        ledger: Ledger,
        doubts: Doubts,
        mps_health: MpsHealth,
        mps_root: Path,
        read_only_pipes: bool,
        patience_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        """`patience_seconds`: for the agent, while the kubelet waits for the answer of a PreStartContainer."""
        self.resource = resource
        self.last_ended = float("-inf")  # monotonic, of the latest stream
        self._lists, self._ledger, self._mps_health, self._mps_root = lists, ledger, mps_health, mps_root
        self._on_change, self._read_only_pipes, self._doubts = on_change, read_only_pipes, doubts
        self._patience_seconds, self._starting = patience_seconds, threading.BoundedSemaphore(MAX_STARTING)
        self._lock = threading.Lock()
        self._streams: list[Stream] = []

    def streams(self) -> tuple[Stream, ...]:
        with self._lock:
            return tuple(self._streams)

    def pushed(self) -> bool:
        """Every open stream has sent the present list."""
        return {stream.sent for stream in self.streams()} <= {self._lists.listing(self.resource).number}

    def end_streams(self) -> None:
        for stream in self.streams():
            stream.over.set()
        self._lists.wake()

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def ListAndWatch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        stream = Stream()
        with self._lock:
            self._streams.append(stream)
        if not context.add_callback(lambda: self._ended(stream)):
            self._ended(stream)
        self._on_change()
        number = UNSENT
        while (listing := self._lists.next_listing(self.resource, number, stream.over.is_set)) is not None:
            # No topology: an empty one would hide the device from GetAllocatableResources.
            devices = [pb.Device(ID=id_, health=HEALTHY if healthy else UNHEALTHY) for id_, healthy in listing.devices]
            yield pb.ListAndWatchResponse(devices=devices)
            # gRPC requests more only after it has handed the message to the socket.
            number = stream.sent = listing.number
            self._on_change()

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        answer = pb.PreferredAllocationResponse()
        for container in request.container_requests:
            available, required = list(container.available_deviceIDs), list(container.must_include_deviceIDs)
            devices = {id_: self._lists.advertised(id_) for id_ in {*available, *required}}
            gpu_of = {id_: device.gpu for id_, device in devices.items() if device is not None}
            # This reads the disk, which the liveness probe must not need.
            recorded = self._doubts.unmarked() if gpu_of else ()
            chosen = preferred(available, required, container.allocation_size, gpu_of, recorded)
            answer.container_responses.append(pb.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return answer

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        answer = pb.AllocateResponse()
        for container in request.container_requests:
            ids = sorted(set(container.devices_ids))
            with self._lists.allocating(self.resource, ids) as devices:
                if isinstance(devices, RefusedAllocate):
                    log.warning("Allocate refused: %s", devices.sentence)
                    # The code is part of the pod's message, by which the agent knows pods that lost their partition.
                    code = grpc.StatusCode
                    context.abort(
                        code.INVALID_ARGUMENT if devices.by_request else code.FAILED_PRECONDITION, devices.sentence
                    )
                if devices:
                    self._record(ids, context)
                    named, read_only = self._lists.strategy(), self._read_only_pipes
                    given = container_answer(devices, self._mps_root, named, read_only_pipes=read_only)
                    answer.container_responses.append(given)
                else:
                    answer.container_responses.append(pb.ContainerAllocateResponse())
        self._on_change()
        return answer

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        why = "as many other containers start as can be looked at, or the node's disk does not answer"
        if self._starting.acquire(timeout=POLL_SECONDS):
            try:
                why = self._why_not_yet(request.devices_ids, context)
            finally:
                self._starting.release()
        if why:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{why}. This is tried again.")
        return pb.PreStartContainerResponse()

    def _why_not_yet(self, ids: Collection[str], context: grpc.ServicerContext) -> str:
        if occupied := self._lists.occupied(ids):
            return f"a process of a pod that was deleted by force still has {occupied[0]}"
        try:
            self._ledger.recall(self.resource, ids)
        except OSError as error:
            return f"gpuplan cannot write its ledger of allocations: {error}"
        if shared := self._shared(ids, context):
            return f"an earlier pod may still use {shared}: gpuplan's node agent has not seen its end yet"
        devices = [self._lists.device(id_) for id_ in ids]
        gpus = {device.gpu for device in devices if device is not None and device.kind is DeviceKind.MPS}
        for gpu in sorted(gpus):
            if (reason := self._mps_health.confirm(gpu)) is not None:
                return f"MPS on {gpu} is not ready: {reason}"
        return ""

    def _shared(self, ids: Collection[str], context: grpc.ServicerContext) -> str:
        """The first one that an earlier pod may still have when the agent has had a moment to look."""
        until = time.monotonic() + self._patience_seconds
        while (shared := self._doubts.shared(ids)) and context.is_active() and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return shared

    def _record(self, ids: list[str], context: grpc.ServicerContext) -> None:
        try:
            self._ledger.record(self.resource, ids, self._doubts.unmarked())
        except OSError as error:
            log.error("Allocate refused, the ledger cannot be written: %s", error)
            self._lists.close()  # its pod is lost; the next one must not come
            self._on_change()
            context.abort(grpc.StatusCode.INTERNAL, f"gpuplan cannot write its ledger of allocations: {error}")

    def _ended(self, stream: Stream) -> None:
        stream.over.set()
        with self._lock:
            self.last_ended = time.monotonic()
            if stream in self._streams:
                self._streams.remove(stream)
        self._lists.wake()
        self._on_change()


class Endpoint:
    """The socket of one resource, under another name for each registration.

    A kubelet from 1.37 on refuses a path that it is, or seems to be, connected to, for as long as it runs.
    """

    def __init__(self, server: ResourceServer, directory: Path) -> None:
        self.server, self._directory = server, directory
        self.path = directory / socket_name(server.resource, "")
        self._grpc: grpc.Server | None = None

    def serve_again(self) -> None:
        """Raises OSError where the socket cannot be made."""
        self.stop()
        self.path = self._directory / socket_name(self.server.resource, secrets.token_hex(SERIAL_HEX_DIGITS // 2))
        if len(str(self.path).encode()) > MAX_SOCKET_PATH_BYTES:
            raise OSError(f"the socket path {self.path} is longer than {MAX_SOCKET_PATH_BYTES} bytes")
        server = grpc.server(futures.ThreadPoolExecutor(WORKERS, thread_name_prefix=self.path.stem))
        rpc.add_DevicePluginServicer_to_server(self.server, server)
        try:
            server.add_insecure_port(unix_target(self.path))
        except RuntimeError as error:
            raise OSError(f"cannot serve on {self.path}: {error}") from error
        server.start()
        self._grpc = server

    def stop(self) -> None:
        self.server.end_streams()
        if self._grpc is not None:
            self._grpc.stop(grace=0.5).wait()
            self._grpc = None
        # Also what a process left that was killed; two never run.
        for left in self._directory.glob(socket_name(self.server.resource, "*")):
            if left.name == socket_name(self.server.resource, left.stem[-SERIAL_HEX_DIGITS:]):
                left.unlink(missing_ok=True)

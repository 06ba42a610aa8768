"""One kubelet stand-in: its sockets, its threads, its start and its end.

In: a node's name, a folder, the API. Out: what a real kubelet shows around itself: kubelet.sock, pod-resources, the
checkpoint, pods that run and finish, a node status that follows its device plugins at the tick. `stop` and `kill`
leave dead sockets behind, as a real one does; a new Kubelet on the same folder and runtime is the restart.
"""

import logging
import threading
import zlib
from pathlib import Path
from random import Random

import grpc

from kube.kubelet_api.deviceplugin_pb2_grpc import add_RegistrationServicer_to_server
from kube.kubelet_api.paths import KubeletPaths
from kube.kubelet_api.podresources_pb2_grpc import add_PodResourcesListerServicer_to_server
from sandbox.kubelet.addresses import PodAddresses, invented_node_ip
from sandbox.kubelet.admission import Admission
from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.api import KubeletApi
from sandbox.kubelet.checkpoint import Checkpoint, CheckpointFile
from sandbox.kubelet.clock import Clock
from sandbox.kubelet.devices import DeviceTable
from sandbox.kubelet.endpoints import Endpoints
from sandbox.kubelet.loop import SyncLoop
from sandbox.kubelet.node_status import NodeReading
from sandbox.kubelet.node_ticks import NodeTicks
from sandbox.kubelet.podbook import PodBook
from sandbox.kubelet.podresources import PodResources, RateLimit
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.registration import Registration
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Switches, Timings
from sandbox.kubelet.sockets import SocketServer, remove_sockets
from sandbox.kubelet.starts import ContainerStarts
from sandbox.kubelet.workers import PodWorkers, Surroundings
from sandbox.kubelet.writer import ApiWriter

_REGISTRATION_THREADS = 8  # a Register call can wait 10 s for its dial
_POD_RESOURCES_THREADS = 2
_LOOK_AGAIN_SECONDS = 0.05
log = logging.getLogger(__name__)


class Kubelet:
    def __init__(
        self,
        node_name: str,
        root: Path,
        api: KubeletApi,
        *,
        status_tick_seconds: float = 10.0,
        clock: Clock | None = None,
        runtime: ScriptedRuntime | None = None,
        timings: Timings | None = None,
        switches: Switches | None = None,
    ) -> None:
        self.node_name = node_name
        self.paths = KubeletPaths(root)
        self._api = api
        self._clock = clock or Clock()
        self._timings = timings or Timings()
        self._switches = switches or Switches()
        self._owns_runtime = runtime is None
        self.runtime = runtime or ScriptedRuntime(clock=self._clock)
        # One source per node, so that the same cluster gives the same choices.
        self._random = Random(zlib.crc32(node_name.encode()))
        self._quit = threading.Event()
        self._book = PodBook()
        self._endpoints = Endpoints()
        self._table = DeviceTable(grace_seconds=self._timings.endpoint_grace_seconds, random=self._random)
        self._loop = SyncLoop(f"kubelet {node_name}", self._clock)
        self._pod_resources = PodResources(
            book=self._book,
            table=self._table,
            limit=RateLimit(self._timings.rate_per_second, self._timings.rate_burst, self._clock),
            switches=self._switches,
            random=self._random,
        )
        self._prepare_folders()
        self._allocator = Allocator(
            table=self._table,
            endpoints=self._endpoints,
            checkpoint=CheckpointFile(self.paths.checkpoint),
            free_inactive=self._pod_resources.free_inactive,
            pause=self._quit.wait,
        )
        self._ticks = self._node_ticks(status_tick_seconds, start_over=not self._restore())
        self._writer = ApiWriter(f"kubelet {node_name} writer", api, self._clock, self._ticks.tick)
        self._registration = self._make_registration()
        self._workers = self._make_workers()
        self._servers = self._make_servers()
        self._pods_watch = api.watch_pods(node_name, self._pod_seen)
        self._node_watch = api.watch_node(node_name, self._node_seen)
        self._first_pods: dict[tuple[str, str], Pod] | None = {}

    # ------------------------------------------------------------------------------ start and end

    def start(self) -> None:
        """Returns at once; pod-resources answers from now, kubelet.sock and the pods follow."""
        pod_resources, _ = self._servers
        pod_resources.start()
        self._api.start()
        self.runtime.listen(lambda record: self._loop.post(lambda: self._workers.container_changed(record)))
        self._loop.start()
        self._loop.after(self._timings.registration_after_seconds, self._serve_registration)
        self._node_watch.start()
        self._pods_watch.start()
        self._writer.start()

    def stop(self) -> None:
        """End as a kubelet that was told to: statuses that are due are still written."""
        self._end(drain_seconds=2.0)
        self._api.stop()
        if self._owns_runtime:
            self.runtime.close()

    def kill(self) -> None:
        """End as a process that vanishes: nothing more is written, containers run on."""
        self._end(drain_seconds=0.0)

    def _end(self, *, drain_seconds: float) -> None:
        self._quit.set()
        self.runtime.listen(None)
        self._loop.stop(join_seconds=0)
        self._writer.stop(drain_seconds=drain_seconds)
        self._registration.close()
        for server in self._servers:
            server.stop()
        self._pods_watch.stop()
        self._node_watch.stop()
        self._loop.stop()

    # -------------------------------------------------------------------------------------- parts

    def _prepare_folders(self) -> None:
        self.paths.plugin_dir.mkdir(parents=True, exist_ok=True)
        self.paths.pod_resources_socket.parent.mkdir(parents=True, exist_ok=True)

    def _restore(self) -> bool:
        """Whether an earlier kubelet's checkpoint was read; without one, all devices count as free."""
        checkpoint = CheckpointFile(self.paths.checkpoint).load()
        if not isinstance(checkpoint, Checkpoint):
            log.info("%s: continue after failing to read checkpoint file: %s", self.node_name, checkpoint.message)
            return False
        self._table.restore(checkpoint.holdings, checkpoint.registered, self._clock.monotonic())
        for resource in checkpoint.registered:
            self._endpoints.put(resource, None)
        return True

    def _node_ticks(self, tick_seconds: float, *, start_over: bool) -> NodeTicks:
        return NodeTicks(
            api=self._api,
            table=self._table,
            endpoints=self._endpoints,
            expired=self._allocator.save,
            clock=self._clock,
            random=self._random,
            tick_seconds=tick_seconds,
            lease_seconds=self._timings.lease_renew_seconds,
            version=self._switches.version,
            boots=self.runtime.boots,
            start_over=start_over,
        )

    def _make_registration(self) -> Registration:
        return Registration(
            plugin_dir=self.paths.plugin_dir,
            table=self._table,
            endpoints=self._endpoints,
            dial_timeout_seconds=self._timings.dial_timeout_seconds,
            clock=self._clock,
            changed=self._devices_changed,
        )

    def _make_workers(self) -> PodWorkers:
        addresses = PodAddresses(self.node_name)
        return PodWorkers(
            Surroundings(
                book=self._book,
                admission=Admission(
                    allocator=self._allocator, table=self._table, book=self._book, node=lambda: self._ticks.node
                ),
                starts=ContainerStarts(
                    table=self._table,
                    endpoints=self._endpoints,
                    runtime=self.runtime,
                    timings=self._timings,
                    random=self._random,
                ),
                runtime=self.runtime,
                loop=self._loop,
                writer=self._writer,
                api=self._api,
                clock=self._clock,
                timings=self._timings,
                switches=self._switches,
                pod_ip=lambda pod: self._host_ip() if pod.host_network else addresses.take(),
                host_ip=self._host_ip,
            )
        )

    def _make_servers(self) -> tuple[SocketServer, SocketServer]:
        def pod_resources(server: grpc.Server) -> None:
            add_PodResourcesListerServicer_to_server(self._pod_resources, server)

        def registration(server: grpc.Server) -> None:
            add_RegistrationServicer_to_server(self._registration, server)

        root, paths = self.paths.root, self.paths
        return (
            SocketServer(root / ".r", paths.pod_resources_socket, pod_resources, threads=_POD_RESOURCES_THREADS),
            SocketServer(root / ".k", paths.registration_socket, registration, threads=_REGISTRATION_THREADS),
        )

    def _host_ip(self) -> str:
        node = self._ticks.node
        return node.host_ip if node is not None else invented_node_ip(self.node_name)

    # ----------------------------------------------------------------------------- what comes in

    def _serve_registration(self) -> None:
        remove_sockets(self.paths.plugin_dir)
        _, registration = self._servers
        registration.start()
        self._loop.after(self._timings.pods_after_seconds, self._look_for_pods)

    def _look_for_pods(self) -> None:
        if self._pods_watch.synced.is_set() and self._node_watch.synced.is_set():
            # Behind everything that the first list has put into the loop.
            self._loop.post(self._begin)
        else:
            self._loop.after(_LOOK_AGAIN_SECONDS, self._look_for_pods)

    def _begin(self) -> None:
        pods, self._first_pods = self._first_pods or {}, None
        self._workers.begin(list(pods.values()))

    def _pod_seen(self, old: Pod | None, new: Pod | None) -> None:
        self._loop.post(lambda: self._pod_changed(old, new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if self._first_pods is None:
            self._workers.changed(old, new)
        elif new is not None:
            self._first_pods[(new.namespace, new.name)] = new
        elif old is not None:
            self._first_pods.pop((old.namespace, old.name), None)

    def _node_seen(self, node: NodeReading | None) -> None:
        first = self._ticks.node is None
        self._ticks.node = node
        if first:
            self._writer.tick_soon()

    def _devices_changed(self, resource: str) -> None:
        self._allocator.save()
        self._loop.post(lambda: self._workers.health_changed(resource))

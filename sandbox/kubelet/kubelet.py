"""Runs one simulated kubelet: its sockets, its threads, its start and its end.

Takes a node's name, a folder and the API, and provides what a real kubelet does: kubelet.sock, pod-resources, the
checkpoint, pods that run and finish, a node status that follows its device plugins at the tick. `stop` and `kill` leave
dead sockets behind, as a real one does; a new Kubelet on the same folder and runtime is the restart.
"""

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import grpc

from kube.kubelet_api.deviceplugin_pb2_grpc import add_RegistrationServicer_to_server
from kube.kubelet_api.paths import KubeletPaths
from kube.kubelet_api.podresources_pb2_grpc import add_PodResourcesListerServicer_to_server
from sandbox.kubelet.admission import Admission
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.device_plugins import DevicePlugins
from sandbox.kubelet.lifecycle import PodBook
from sandbox.kubelet.node_status import NodeReading, PodAddresses, invented_node_ip
from sandbox.kubelet.podresources import PodResources, RateLimit
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.runner import KubeletParts, PodRunner
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Switches, Timings
from sandbox.kubelet.sockets import SocketServer, remove_sockets
from sandbox.kubelet.starts import ContainerStarts
from sandbox.kubelet.workers import PodWorkers
from sandbox.kubelet.writer import ApiWriter, NodeTicks
from sandbox.loop import Loop

_REGISTRATION_THREADS = 8  # a Register call can wait 10 s for its dial
_POD_RESOURCES_THREADS = 2
_LOOK_AGAIN_SECONDS = 0.05


class Kubelet:
    def __init__(
        self,
        node_name: str,
        root: Path,
        api: ClusterApi,
        *,
        status_tick_seconds: float = 10.0,
        runtime: ScriptedRuntime | None = None,
        timings: Timings | None = None,
        switches: Switches | None = None,
        cdi_dirs: Sequence[Path] = (),
    ) -> None:
        self.node_name = node_name
        self.paths = KubeletPaths(root)
        self._api = api
        self._timings = timings or Timings()
        self._switches = switches or Switches()
        self._cdi_dirs = tuple(cdi_dirs)
        self._owns_runtime = runtime is None
        self.runtime = runtime or ScriptedRuntime()
        # One source per node, so that the same cluster gives the same choices.
        self._random = Random(zlib.crc32(node_name.encode()))
        self._quit = threading.Event()
        self._loop = Loop(f"kubelet {node_name}")
        self._book = PodBook()
        new_node = self._make_folders()
        self._devices = self._make_devices()
        self._ticks = self._make_ticks(status_tick_seconds, new_node=new_node)
        self._writer = ApiWriter(f"kubelet {node_name} writer", api, self._ticks.tick)
        parts = self._parts()
        self._runner = PodRunner(parts)
        self._workers = PodWorkers(parts, self._runner)
        self._pod_resources_server, self._registration_server = self._make_servers()
        self._pods_watch = api.watch_pods(self._pod_seen)
        self._node_watch = api.watch_node(self._node_seen)
        self._first_pods: dict[tuple[str, str], Pod] | None = {}

    def start(self) -> None:
        """Returns at once; pod-resources answers from now, kubelet.sock and the pods follow."""
        self._pod_resources_server.start()
        self._api.start()
        self.runtime.listen(lambda record: self._loop.post(lambda: self._runner.container_changed(record)))
        self._loop.start()
        self._loop.after(self._timings.registration_after_seconds, self._serve_registration)
        self._node_watch.start()
        self._pods_watch.start()
        self._writer.start()

    def stop(self) -> None:
        """End as after SIGTERM: statuses that are due are still written."""
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
        self._devices.close()
        self._pod_resources_server.stop()
        self._registration_server.stop()
        self._pods_watch.stop()
        self._node_watch.stop()
        self._loop.stop()

    def _make_folders(self) -> bool:
        """Whether the plugin folder was empty: no kubelet ran here before. Its dead sockets count as content."""
        self.paths.plugin_dir.mkdir(parents=True, exist_ok=True)
        self.paths.pod_resources_socket.parent.mkdir(parents=True, exist_ok=True)
        return not any(self.paths.plugin_dir.iterdir())

    def _make_devices(self) -> DevicePlugins:
        return DevicePlugins(
            paths=self.paths,
            book=self._book,
            timings=self._timings,
            switches=self._switches,
            random=self._random,
            changed=lambda resource: self._loop.post(lambda: self._runner.health_changed(resource)),
        )

    def _make_ticks(self, tick_seconds: float, *, new_node: bool) -> NodeTicks:
        return NodeTicks(
            api=self._api,
            table=self._devices.table,
            endpoints=self._devices.endpoints,
            expired=self._devices.allocator.save,
            random=self._random,
            tick_seconds=tick_seconds,
            lease_seconds=self._timings.lease_renew_seconds,
            version=self._switches.version,
            boots=self.runtime.boots,
            new_node=new_node,
        )

    def _parts(self) -> KubeletParts:
        devices, addresses = self._devices, PodAddresses(self.node_name)
        return KubeletParts(
            book=self._book,
            admission=Admission(
                allocator=devices.allocator, table=devices.table, book=self._book, node=lambda: self._ticks.node
            ),
            starts=ContainerStarts(
                table=devices.table,
                endpoints=devices.endpoints,
                runtime=self.runtime,
                timings=self._timings,
                random=self._random,
                cdi_dirs=self._cdi_dirs,
            ),
            runtime=self.runtime,
            loop=self._loop,
            writer=self._writer,
            api=self._api,
            timings=self._timings,
            switches=self._switches,
            pod_ip=lambda pod: self._host_ip() if pod.host_network else addresses.take(),
            host_ip=self._host_ip,
        )

    def _make_servers(self) -> tuple[SocketServer, SocketServer]:
        """pod-resources and Registration."""
        root, paths, timings = self.paths.root, self.paths, self._timings
        service = PodResources(
            book=self._book,
            table=self._devices.table,
            free_inactive=self._devices.free_inactive,
            limit=RateLimit(timings.rate_per_second, timings.rate_burst),
            switches=self._switches,
            random=self._random,
        )

        def pod_resources(server: grpc.Server) -> None:
            add_PodResourcesListerServicer_to_server(service, server)

        def registration(server: grpc.Server) -> None:
            add_RegistrationServicer_to_server(self._devices.registration, server)

        return (
            SocketServer(root / ".r", paths.pod_resources_socket, pod_resources, threads=_POD_RESOURCES_THREADS),
            SocketServer(root / ".k", paths.registration_socket, registration, threads=_REGISTRATION_THREADS),
        )

    def _host_ip(self) -> str:
        node = self._ticks.node
        return node.host_ip if node is not None else invented_node_ip(self.node_name)

    def _serve_registration(self) -> None:
        kept = None if self._switches.active_list else self.paths.checkpoint
        remove_sockets(self.paths.plugin_dir, and_files_but=kept)
        self._registration_server.start()
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
        self._ticks.node = node

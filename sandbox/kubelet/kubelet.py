"""Runs one simulated kubelet: its sockets, its threads, its start and its end.

Takes a node's name, a folder and the API, and provides what a real kubelet does: kubelet.sock, pod-resources, the
checkpoint, pods that run and finish, a node status that follows its device plugins at the tick. `stop` and `kill` leave
dead sockets behind, as a real one does; a new Kubelet on the same folder and runtime is the restart.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import grpc

from kube.kubelet_api.deviceplugin_pb2_grpc import add_RegistrationServicer_to_server
from kube.kubelet_api.paths import KubeletPaths
from kube.kubelet_api.podresources_pb2_grpc import add_PodResourcesListerServicer_to_server
from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.devices import DeviceTable
from sandbox.kubelet.node_status import NodeReading
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.podresources import PodResources, RateLimit
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.registration import Registration
from sandbox.kubelet.runner import PodRunner
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Timings
from sandbox.kubelet.sockets import SocketServer, remove_sockets
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
        runtime: ScriptedRuntime,
        timings: Timings | None = None,
        cdi_dirs: Sequence[Path] = (),
    ) -> None:
        self.paths = KubeletPaths(root)
        # One source per node, so that the same cluster gives the same choices.
        random = Random(zlib.crc32(node_name.encode()))
        timings = timings or Timings()
        self.parts = parts = KubeletParts(
            node_name=node_name,
            paths=self.paths,
            api=api,
            runtime=runtime,
            loop=Loop(f"kubelet {node_name}"),
            table=DeviceTable(grace_seconds=timings.endpoint_grace_seconds, random=random),
            random=random,
            timings=timings,
            cdi_dirs=cdi_dirs,
        )
        self._loop = parts.loop
        new_node = self._make_folders()
        self._allocator = Allocator(parts)
        self._registration = Registration(
            plugin_dir=self.paths.plugin_dir,
            table=parts.table,
            endpoints=parts.endpoints,
            dial_timeout_seconds=timings.dial_timeout_seconds,
            changed=self._devices_changed,
        )
        ticks = NodeTicks(parts, status_tick_seconds, new_node=new_node, expired=self._allocator.save)
        self._writer = ApiWriter(f"kubelet {node_name} writer", api, ticks.tick)
        self._runner = PodRunner(parts, self._writer)
        self._workers = PodWorkers(parts, self._allocator, self._runner, self._writer)
        self._pod_resources_server, self._registration_server = self._make_servers()
        self._pods_watch = api.watch_pods(self._pod_seen)
        self._node_watch = api.watch_node(self._node_seen)
        self._first_pods: dict[tuple[str, str], Pod] | None = {}

    def start(self) -> None:
        """Returns at once; pod-resources answers from now, kubelet.sock and the pods follow."""
        self._pod_resources_server.start()
        self.parts.api.start()
        self.parts.runtime.listen(lambda record: self._loop.post(lambda: self._runner.container_changed(record)))
        self._loop.start()
        self._loop.after(self.parts.timings.registration_after_seconds, self._serve_registration)
        self._node_watch.start()
        self._pods_watch.start()
        self._writer.start()

    def stop(self) -> None:
        """End as after SIGTERM: statuses that are due are still written."""
        self._end(drain_seconds=2.0)
        self.parts.api.stop()

    def kill(self) -> None:
        """End as a process that vanishes: nothing more is written, containers run on."""
        self._end(drain_seconds=0.0)

    def _end(self, *, drain_seconds: float) -> None:
        self.parts.runtime.listen(None)
        self._loop.stop(join_seconds=0)
        self._writer.stop(drain_seconds=drain_seconds)
        self._allocator.close()
        self._registration.close()
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

    def _make_servers(self) -> tuple[SocketServer, SocketServer]:
        """pod-resources and Registration."""
        root, paths, timings = self.paths.root, self.paths, self.parts.timings
        limit = RateLimit(timings.rate_per_second, timings.rate_burst)
        service = PodResources(parts=self.parts, free_inactive=self._allocator.free_inactive, limit=limit)

        def pod_resources(server: grpc.Server) -> None:
            add_PodResourcesListerServicer_to_server(service, server)

        def registration(server: grpc.Server) -> None:
            add_RegistrationServicer_to_server(self._registration, server)

        return (
            SocketServer(root / ".r", paths.pod_resources_socket, pod_resources, threads=_POD_RESOURCES_THREADS),
            SocketServer(root / ".k", paths.registration_socket, registration, threads=_REGISTRATION_THREADS),
        )

    def _devices_changed(self, resource: str) -> None:
        self._allocator.save()
        self._loop.post(lambda: self._runner.health_changed(resource))

    def _serve_registration(self) -> None:
        remove_sockets(self.paths.plugin_dir)
        self._registration_server.start()
        self._loop.after(self.parts.timings.pods_after_seconds, self._look_for_pods)

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
        self.parts.node = node

"""Reads what the kubelet reports of devices: pod-resources, its checkpoint, and whether it started just now.

Takes the kubelet's directory and clocks, returns frozen readings. A call without an answer returns a `NoAnswer` with
the reason, never an empty list, because "no pod holds anything" and "unknown" must not look alike. Only reads: the
checkpoint belongs to the kubelet. Whether a reading may be believed is decided in `usage`.
"""

import json
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import grpc

from kube.change_log import ChangeLog
from kube.kubelet_api import podresources_pb2 as messages
from kube.kubelet_api.allocatable import ids_by_resource, pod_resources
from kube.kubelet_api.paths import KubeletPaths
from nodeagent.handover.files import Identity, identity
from nodeagent.handover.host_paths import on_host
from nodeagent.handover.rival_sockets import driver_sockets, rival_sockets
from nodeagent.hardware.gpu_ids import DRA_DRIVER, KNOWN, GpuResources
from nodeagent.observed.claim_records import Claimed, claimed_devices, of_driver, of_kubelet

log = logging.getLogger(__name__)
ANSWER_SECONDS = 5.0
PEER = struct.Struct("3i")
"""Process, user and group: `struct ucred`."""

Held: TypeAlias = Mapping[str, tuple[str, ...]]
"""Device ids by resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """The question could not be put, or was refused."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """pod-resources List: devices by pod (namespace, name), then container. Plain init containers are never in it."""

    pods: Mapping[tuple[str, str], Mapping[str, Held]] = field(default_factory=lambda: MappingProxyType({}))

    def only(self, resources: GpuResources) -> "Listed":
        """Without the ids that concern no GPU."""
        return Listed(
            pods={
                pod: {name: _concerning(held, resources) for name, held in containers.items()}
                for pod, containers in self.pods.items()
            }
        )

    def ids(self, keys: Iterable[tuple[str, str]] | None = None) -> frozenset[str]:
        """Of these pods; of all of them where none are named."""
        pods = (self.pods.get(key, {}) for key in (self.pods if keys is None else keys))
        return frozenset(i for containers in pods for held in containers.values() for ids in held.values() for i in ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocatable:
    """GetAllocatableResources: every healthy device that the kubelet has registered, held or not."""

    ids: Held = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry:
    """A line of the kubelet's checkpoint on GPUs; lines of ended pods linger until it is written again."""

    pod_uid: str
    ids: tuple[str, ...]


@dataclass
class Kubelet:
    """The kubelet of this node, read on its own machine. `clock` is monotonic, and 0 at boot."""

    root: Path
    _: KW_ONLY
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    resources: GpuResources = KNOWN
    host: Path = Path("/proc/1/root")

    def __post_init__(self) -> None:
        self._paths, self._change_log = KubeletPaths(self.root), ChangeLog(log)
        self._identity: Identity | None = None
        self._started_at: float | None = None

    def listed(self) -> Listed | NoAnswer:
        try:
            with pod_resources(self._paths.pod_resources_socket) as kubelet:
                answer = kubelet.List(messages.ListPodResourcesRequest(), timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            return _no_answer("List", error)
        return Listed(pods={(pod.namespace, pod.name): _containers(pod) for pod in answer.pod_resources})

    def allocatable(self) -> Allocatable | NoAnswer:
        try:
            with pod_resources(self._paths.pod_resources_socket) as kubelet:
                answer = kubelet.GetAllocatableResources(messages.AllocatableResourcesRequest(), timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            return _no_answer("GetAllocatableResources", error)
        return Allocatable(ids=ids_by_resource(answer.devices))

    def checkpoint(self) -> tuple[CheckpointEntry, ...]:
        """Extra votes for "used", claims included: without a readable file there are none, and nothing follows."""
        host, problems, found = self._host_paths(), [], []
        readers: dict[Path, Callable[[Any], list[Claimed]]] = {
            self._paths.checkpoint: partial(_checkpointed, resources=self.resources),
            host.claims: of_kubelet,
            host.driver_checkpoint(DRA_DRIVER): of_driver,
        }
        for path, read in readers.items():
            try:
                rows = read(json.loads(path.read_text(encoding="utf-8")))
                found += [CheckpointEntry(pod_uid=uid, ids=ids) for uid, ids in rows]
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                problems.append(f"{path.name} is no witness, it cannot be read: {error!r}")
        self._change_log.warn("; ".join(problems))
        return tuple(found)

    def _host_paths(self) -> KubeletPaths:
        """As the host has them: of the kubelet's directory the agent's pod mounts what it needs for device plugins."""
        try:
            seen = on_host(self.host, self._paths.root)
        except OSError:
            return self._paths
        return KubeletPaths(seen) if os.path.isdir(seen) else self._paths

    def rival_sockets(self) -> tuple[str, ...]:
        """Names of the sockets that another GPU device plugin, or NVIDIA's DRA driver, serves on this node."""
        return (*rival_sockets(self._paths.plugin_dir), *driver_sockets(self._host_paths().root, DRA_DRIVER))

    def shares_processes(self) -> bool:
        """Whether this process sees the kubelet's, and with it those of all containers; True while it is not served.

        The kernel names the peer of a socket by its id in the caller's PID namespace: 0 where it is in none below. A
        procfs that hides others' processes does not have it either, at the second look: it may have ended just then.
        """
        return self._sees_peer() or self._sees_peer()

    def _sees_peer(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(ANSWER_SECONDS)
                probe.connect(str(self._paths.pod_resources_socket))
                pid, _, _ = PEER.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        except OSError:
            return True
        return bool(pid) and os.path.exists(f"/proc/{pid}")

    def identity(self) -> Identity | None:
        """Of the socket on which device plugins register: a new one means a new kubelet."""
        return identity(self._paths.registration_socket)

    def seconds_since_start(self) -> float | None:
        """Since this kubelet began to serve; None while it does not. A new socket means a new kubelet."""
        found = identity(self._paths.pod_resources_socket)
        if found is None:
            self._identity = self._started_at = None
            return None
        if found != self._identity:
            first_look = self._identity is None
            self._identity = found
            age = max(self.wall_clock() - found[1] / 1e9, 0.0) if first_look else 0.0
            # A clock that NTP has just put right would age it by hours; no kubelet is older than its machine's boot.
            now = self.clock()
            self._started_at = now - min(age, now)
        return self.clock() - (self._started_at or 0.0)


def _no_answer(method: str, error: grpc.RpcError) -> NoAnswer:
    call: Any = error  # errors of calls are calls too, which the stubs do not know
    return NoAnswer(reason=f"pod-resources {method}: {call.code().name}: {call.details()}")


def _checkpointed(content: Mapping[str, Any], resources: GpuResources) -> list[Claimed]:
    """The ids of GPUs in each line of the checkpoint."""
    found = []
    for row in content["Data"]["PodDeviceEntries"] or ():
        ids = {str(device_id) for of_numa_node in (row["DeviceIDs"] or {}).values() for device_id in of_numa_node or ()}
        concerning = tuple(sorted(i for i in ids if resources.concerns(row["ResourceName"], i)))
        if concerning:
            found.append((str(row["PodUID"]), concerning))
    return found


def _concerning(held: Held, resources: GpuResources) -> Held:
    return {name: tuple(i for i in ids if resources.concerns(name, i)) for name, ids in held.items()}


def _containers(pod: messages.PodResources) -> dict[str, Held]:
    return {
        container.name: {**ids_by_resource(container.devices), **claimed_devices(container.dynamic_resources)}
        for container in pod.containers
    }

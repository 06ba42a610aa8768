"""Allocates a pod's devices at its admission, and keeps what containers hold in the checkpoint.

One Allocate per container and resource, in the containers' order; a failure is the `Refusal` that ends up in the pod's
message. It runs in the sync loop and has no deadline: while a plugin answers, no other pod is admitted. Devices that an
earlier container of a refused pod got are freed when inactive pods are checked next. The checkpoint is
`kubelet_internal_checkpoint`, one JSON line in the kubelet's format with mode 0600, written on each Allocate and each
device update, never when a pod ends. Its checksum is the stand-in's own (CRC-32; the real one hashes a Go dump).
"""

import base64
import binascii
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from kube.kubelet_api import deviceplugin_pb2 as api
from sandbox.kubelet.devices import Holder, Holding
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.pods import Container, Pod, Role
from sandbox.kubelet.registration import PluginClient
from sandbox.kubelet.selection import Refusal, Wanted

log = logging.getLogger(__name__)

NO_NUMA_NODE = "-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    holdings: Mapping[Holder, Holding]
    registered: Mapping[str, tuple[str, ...]]
    """Healthy devices by resource."""


class CheckpointFile:
    """Saved from the admission thread and from every plugin's stream, so one writer at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Nothing is written any more: the next kubelet may be reading already."""
        with self._lock:
            self._closed = True

    def save(self, checkpoint: Checkpoint) -> None:
        data = _data(checkpoint)
        text = json.dumps({"Data": data, "Checksum": _checksum(data)}, separators=(",", ":"))
        draft = self._path.with_name(f".{self._path.name}")
        with self._lock:
            if self._closed:
                return
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(self._path)

    def load(self) -> Checkpoint | Refusal:
        """A missing or damaged file is an ordinary case: the kubelet goes on without it, knowing of no holder."""
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            data = content["Data"]
            if content["Checksum"] != _checksum(data):
                return Refusal(f"{self._path.name} is corrupted")
            return _checkpoint(data)
        except FileNotFoundError:
            return Refusal(f"{self._path.name} is not there")
        except (ValueError, TypeError, KeyError, AttributeError, binascii.Error, DecodeError) as error:
            return Refusal(f"{self._path.name} cannot be read: {error}")


def _data(checkpoint: Checkpoint) -> dict[str, Any]:
    entries = [
        {
            "PodUID": holder.pod_uid,
            "ContainerName": holder.container,
            "ResourceName": holder.resource,
            "DeviceIDs": {NO_NUMA_NODE: sorted(holding.device_ids)},
            "AllocResp": base64.b64encode(holding.answer.SerializeToString(deterministic=True)).decode(),
        }
        for holder, holding in checkpoint.holdings.items()
    ]
    registered = {resource: sorted(ids) for resource, ids in sorted(checkpoint.registered.items())}
    return {"PodDeviceEntries": entries, "RegisteredDevices": registered}


def _checkpoint(data: Mapping[str, Any]) -> Checkpoint:
    holdings = {}
    for entry in data["PodDeviceEntries"] or ():
        holder = Holder(entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
        ids = frozenset(device_id for ids in entry["DeviceIDs"].values() for device_id in ids)
        answer = api.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"], validate=True))
        holdings[holder] = Holding(ids, answer)
    registered = {resource: tuple(ids) for resource, ids in (data["RegisteredDevices"] or {}).items()}
    return Checkpoint(holdings=holdings, registered=registered)


def _checksum(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, separators=(",", ":"), sort_keys=True).encode())


Reusable = dict[str, frozenset[str]]


class Allocator:
    """It begins with what an earlier kubelet left in the checkpoint; without a readable one all devices are free."""

    def __init__(self, parts: KubeletParts) -> None:
        self._parts = parts
        self._table = parts.table
        self._checkpoint = CheckpointFile(parts.paths.checkpoint)
        found = self._checkpoint.load()
        if isinstance(found, Refusal):
            log.info("continue after failing to read checkpoint file: %s", found.message)
        else:
            self._table.restore(found.holdings, found.registered, time.monotonic())
            parts.endpoints |= dict.fromkeys(found.registered)

    def close(self) -> None:
        self._checkpoint.close()

    def free_inactive(self) -> None:
        """Free what pods hold that are not active, once all pods are known. Only List and admission call this."""
        if self._parts.book.sources_ready:
            self._table.free_inactive(self._parts.book.active_uids)

    def allocate(self, pod: Pod, already_running: Callable[[str], bool]) -> Refusal | None:
        reusable: Reusable = {}
        for container in pod.containers:
            refusal = self._container(pod, container, reusable, already_running=already_running(container.name))
            if refusal is not None:
                return refusal
            self._account(pod, container, reusable)
        return None

    def _account(self, pod: Pod, container: Container, reusable: Reusable) -> None:
        """A plain init container leaves its devices to later containers; all others keep them."""
        for resource, holding in self._table.holdings_of(pod.uid, container.name).items():
            before = reusable.get(resource, frozenset())
            held = holding.device_ids
            reusable[resource] = before | held if container.role is Role.INIT else before - held

    def _container(
        self, pod: Pod, container: Container, reusable: Reusable, *, already_running: bool
    ) -> Refusal | None:
        looked = False
        allocated = False
        for resource, count in container.devices:
            if not count or not self._table.knows(resource):
                continue
            if not looked:
                self.free_inactive()
                looked = True
            holder = Holder(pod.uid, container.name, resource)
            wanted = self._table.needed(
                holder, count, reusable.get(resource, frozenset()), already_running=already_running
            )
            if wanted is None:
                continue
            refusal = wanted if isinstance(wanted, Refusal) else self._call(holder, wanted)
            if refusal is not None:
                return refusal
            allocated = True
        if allocated:
            self.save()
        return None

    def _call(self, holder: Holder, wanted: Wanted) -> Refusal | None:
        client = self._parts.endpoints.get(holder.resource)
        if client is None:
            return Refusal(f"unknown Device Plugin {holder.resource}")
        preferred = self._preferred(client, wanted)
        if isinstance(preferred, Refusal):
            return preferred
        device_ids = self._table.take(wanted, preferred)
        answer = client.allocate(sorted(device_ids))
        if isinstance(answer, Refusal):
            self._table.give_back()
            return answer
        if not answer.container_responses:
            # As in the kubelet, the ids stay taken until devices of ended pods are freed the next time.
            return Refusal("no containers return in allocation response &AllocateResponse{}")
        self._table.hold(holder, Holding(device_ids, answer.container_responses[0]))
        return None

    @staticmethod
    def _preferred(client: PluginClient, wanted: Wanted) -> list[str] | Refusal:
        if wanted.complete or not client.options.get_preferred_allocation_available:
            return []
        return client.preferred(wanted)

    def save(self) -> None:
        """Write the checkpoint; also after each device update."""
        self._checkpoint.save(Checkpoint(holdings=self._table.holdings(), registered=self._table.healthy_ids()))

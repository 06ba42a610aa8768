"""The file `kubelet_internal_checkpoint`: what containers hold, kept over a restart of the kubelet.

In: the device table. Out: one JSON line in the kubelet's format, mode 0600, and back. Written on each Allocate and
each device update, never when a pod ends, so entries of ended pods linger. The checksum is this stand-in's own
(CRC-32 of the canonical JSON; the real one hashes a Go dump): it finds a damaged file, and readers elsewhere ignore
it.
"""

import base64
import binascii
import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from kube.kubelet_api import deviceplugin_pb2 as api
from sandbox.kubelet.devices import Holder, Holding
from sandbox.kubelet.selection import Refusal

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

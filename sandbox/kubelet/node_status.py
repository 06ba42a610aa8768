"""Builds what a kubelet writes into its node's status at a tick.

Takes the node as the API holds it and the device counts; returns a strategic merge patch, or None where nothing
differs. Ordinary resources (cpu, memory, pods) are the manifest's; resources of device plugins are the kubelet's: set
at every tick, 0 after the grace period, never removed. Addresses are invented: the same at every start, and nothing
listens on them. Pure.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from controller.api.pod_requests import amounts
from partitioning.resources import classify
from sandbox.kubelet.devices import Counts
from sandbox.kubelet.times import timestamp


def invented_node_ip(node_name: str) -> str:
    """For a manifest without addresses."""
    number = zlib.crc32(node_name.encode())
    return f"10.{number >> 16 & 127}.{number >> 8 & 255}.{number % 253 + 1}"


def invented_pod_ip(uid: str) -> str:
    """Out of 10.128.0.0/9."""
    number = zlib.crc32(uid.encode())
    return f"10.{128 | number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"


Json = dict[str, Any]
VERSION = "v1.36.3"
"""Of the kubelet whose measured behaviour this is."""
_ORDINARY = {"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "1Ti"}
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """A node at the API. `status` is its raw JSON and is never changed."""

    name: str
    uid: str
    status: Mapping[str, Any]

    @property
    def allocatable(self) -> dict[str, int]:
        return amounts({**_ORDINARY, **_resources(self.status, "capacity"), **_resources(self.status, "allocatable")})

    @property
    def host_ip(self) -> str:
        for address in self.status.get("addresses") or ():
            if address.get("type") == "InternalIP":
                return str(address["address"])
        return invented_node_ip(self.name)


def read_node(raw: Mapping[str, Any]) -> NodeReading:
    metadata = raw["metadata"]
    return NodeReading(name=metadata["name"], uid=metadata.get("uid") or "", status=raw.get("status") or {})


def status_patch(
    node: NodeReading, counts: Counts, *, boots: int, new_node: bool, now: float, due: bool
) -> Json | None:
    """`new_node`: no kubelet was here before, so GPU resources that the manifest claims are 0 until a plugin comes.
    `due`: also where nothing has changed."""
    status = node.status
    capacity = {**_ORDINARY, **_resources(status, "capacity")}
    allocatable = {**capacity, **_resources(status, "allocatable")}
    zero = set(counts.removed) | ({name for name in allocatable if classify(name)} if new_node else set())
    capacity |= dict.fromkeys(sorted(zero), "0") | {name: str(count) for name, count in counts.capacity.items()}
    allocatable |= dict.fromkeys(sorted(zero), "0") | {name: str(count) for name, count in counts.allocatable.items()}
    wanted: Json = {
        "capacity": capacity,
        "allocatable": allocatable,
        "nodeInfo": {**_node_info(node), "kubeletVersion": VERSION, "bootID": _boot_id(node.name, boots)},
        "addresses": list(status.get("addresses") or _addresses(node)),
    }
    present = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    said = all((present.get(kind) or {}).get("status") == value for kind, value, _, _ in _CONDITIONS)
    if not due and said and all(status.get(key) == value for key, value in wanted.items()):
        return None
    return {"status": wanted | {"conditions": _conditions(present, now)}}


def _resources(status: Mapping[str, Any], key: str) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in (status.get(key) or {}).items()}


def _conditions(present: Mapping[Any, Json], now: float) -> list[Json]:
    """Each write has its time in all of them."""
    found = []
    for kind, value, reason, message in _CONDITIONS:
        before = present.get(kind) or {}
        since = before.get("lastTransitionTime") if before.get("status") == value else None
        condition = {"type": kind, "status": value, "reason": reason, "message": message}
        found.append(condition | {"lastHeartbeatTime": timestamp(now), "lastTransitionTime": since or timestamp(now)})
    return found


def _node_info(node: NodeReading) -> Json:
    machine = uuid5(NAMESPACE_DNS, node.name)
    invented = {
        "architecture": "amd64",
        "containerRuntimeVersion": "sandbox://1",
        "kernelVersion": "6.1.0-sandbox",
        "kubeProxyVersion": "",
        "machineID": machine.hex,
        "operatingSystem": "linux",
        "osImage": "gpuplan sandbox",
        "systemUUID": str(machine),
    }
    # The API server fills in every field that a manifest leaves out, with nothing.
    known = {name: text for name, text in (node.status.get("nodeInfo") or {}).items() if text}
    return {**invented, **known}


def _boot_id(node_name: str, boots: int) -> str:
    """Changes with a reboot of the node only, not with a restart of the kubelet."""
    return str(uuid5(NAMESPACE_DNS, f"{node_name}/boot/{boots}"))


def _addresses(node: NodeReading) -> list[Json]:
    return [{"type": "InternalIP", "address": node.host_ip}, {"type": "Hostname", "address": node.name}]

"""Builds the CDI specification of a node: one entry per device, and the edits that all of them share.

Takes devices, the GPUs that they lie on, the driver's device numbers and the driver's files; returns a `Specification`,
which is the JSON document of https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md as a value. Each
device node has type, major and minor, so a container runtime makes it without one on the host. What cannot be described
comes back as a sentence. Pure: equal arguments give equal documents.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from nodeagent.cdi.device_numbers import DeviceNumbers
from nodeagent.handover.cdi import KIND
from nodeagent.handover.config import Device, DeviceKind
from nodeagent.handover.mps_client import PIPE_DIRECTORY, client_environment, pipe_directory
from nodeagent.hardware.driver import ObservedGpu

Edits: TypeAlias = Mapping[str, Any]
"""`containerEdits`, in the words of the specification."""

OLDEST_VERSION = "0.5.0"
"""Of the CDI specification: the first in which a device's name may begin with a digit, and all that ours needs."""
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
MODESET_MINOR, CONTROL_MINOR = 254, 255
CONTROL_NODES = {
    "/dev/nvidiactl": ("nvidia", CONTROL_MINOR),
    "/dev/nvidia-modeset": ("nvidia", MODESET_MINOR),
    "/dev/nvidia-uvm": ("nvidia-uvm", 0),
    "/dev/nvidia-uvm-tools": ("nvidia-uvm", 1),
}
"""Path in the container, name in /proc/devices, minor; as nvidia-container-toolkit makes them."""
BIND = ("nosuid", "nodev", "noexec", "rbind", "rprivate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """Build `common` with `with_control_nodes`; a runtime refuses a specification without devices."""

    version: str
    common: Edits
    devices: Mapping[str, Edits]
    """By the device's id."""

    def document(self) -> dict[str, Any]:
        """Devices in order of their names."""
        return {
            "cdiVersion": self.version,
            "kind": KIND,
            "devices": [{"name": name, "containerEdits": edits} for name, edits in sorted(self.devices.items())],
            "containerEdits": self.common,
        }

    def text(self) -> bytes:
        """As it is written: equal specifications are equal files."""
        return json.dumps(self.document(), indent=1, default=str).encode() + b"\n"

    def without(self, ids: Iterable[str]) -> "Specification":
        gone = frozenset(ids)
        return replace(self, devices={name: edits for name, edits in self.devices.items() if name not in gone})


def newer_version(one: str, other: str) -> str:
    """A runtime refuses fields that the stated version does not have yet, so the newest one in use is stated."""
    return max(one, other, key=lambda version: [int(part) for part in version.split(".")])


def common_edits(driver_files: Edits, numbers: DeviceNumbers) -> Edits:
    """The driver's files and hooks, plus the nodes that every CUDA program opens.

    `void` keeps NVIDIA's runtime, where it is behind the container runtime, from adding every GPU: images and pods set
    `all`, and a CDI edit is the last word on a variable.
    """
    environment = [text for text in driver_files.get("env") or () if text.partition("=")[0] != VISIBLE_DEVICES]
    # NVIDIA's own entries have no numbers: then a runtime looks for the node on the host, below a path of the driver.
    others = [node for node in driver_files.get("deviceNodes") or () if not _is_nvidia(node["path"])]
    control = [
        device_node(path, major, minor)
        for path, (name, minor) in CONTROL_NODES.items()
        if (major := numbers.major(name)) is not None
    ]
    return {**driver_files, "env": [*environment, f"{VISIBLE_DEVICES}=void"], "deviceNodes": [*others, *control]}


def device_edits(
    device: Device, gpu: ObservedGpu, numbers: DeviceNumbers, mps_root: Path | None, *, read_only_pipes: bool = True
) -> Edits | str:
    """What one device puts into a container, or why that is not known."""
    major = numbers.major("nvidia")
    if major is None:
        return numbers.problem or "the kernel lists no device nvidia in /proc/devices: the driver is not loaded"
    if numbers.major("nvidia-uvm") is None:
        return "the kernel module nvidia-uvm is not loaded, and CUDA needs it: run nvidia-modprobe -u -c=0 on the node"
    if gpu.minor is None:
        return f"the driver does not report the device number of GPU {gpu.index}"
    nodes = [device_node(f"/dev/nvidia{gpu.minor}", major, gpu.minor)]
    if device.kind is DeviceKind.MIG:
        capabilities = _capability_nodes(device, gpu, numbers)
        return capabilities if isinstance(capabilities, str) else {"deviceNodes": [*nodes, *capabilities]}
    if device.kind is DeviceKind.WHOLE:
        return {"deviceNodes": nodes}
    if mps_root is None:
        return "the device plugin has not reported yet where its MPS control daemons are"
    pipe = str(pipe_directory(mps_root, device.gpu))
    # Mergeable ones have their limits from the plugin's answer, which knows how many a container gets.
    environment = {PIPE_DIRECTORY: pipe} if device.mergeable else client_environment(device, mps_root)
    return {
        "env": [f"{name}={value}" for name, value in sorted(environment.items())],
        "deviceNodes": nodes,
        "mounts": [{"hostPath": pipe, "containerPath": pipe, "options": ["ro" if read_only_pipes else "rw", *BIND]}],
    }


def outdated(edits: Edits, numbers: DeviceNumbers, others: Iterable[int]) -> bool:
    """Whether edits of a device that were right once name a node of another by now; `others` are minors of GPUs."""
    nodes = edits.get("deviceNodes") or ()
    majors = {numbers.major("nvidia"), numbers.major("nvidia-caps")}
    of_others = {f"/dev/nvidia{minor}" for minor in others}
    return any(node["path"] in of_others or node.get("major") not in majors for node in nodes)


def device_node(path: str, major: int, minor: int) -> Mapping[str, Any]:
    return {"path": path, "type": "c", "major": major, "minor": minor, "permissions": "rw"}


def _capability_nodes(device: Device, gpu: ObservedGpu, numbers: DeviceNumbers) -> list[Mapping[str, Any]] | str:
    """Of the GPU instance and of its compute instance: without either CUDA does not find the MIG device."""
    instance = next((found for found in gpu.instances if found.uuid == device.id), None)
    if instance is None or gpu.minor is None:
        return f"the driver shows no MIG device {device.id} on GPU {gpu.index}"
    major = numbers.major("nvidia-caps")
    if major is None:
        return numbers.problem or "the kernel lists no device nvidia-caps in /proc/devices"
    nodes = []
    for key in ((gpu.minor, instance.id, None), (gpu.minor, instance.id, instance.compute[0].id)):
        minor = numbers.capabilities.get(key)
        if minor is None:
            which = f"GPU instance {instance.id}" + ("" if key[2] is None else f", compute instance {key[2]}")
            absent = f"the driver shows no capability file for {which} of GPU {gpu.index}"
            return numbers.problem or numbers.problems.get(gpu.minor) or absent
        nodes.append(device_node(f"/dev/nvidia-caps/nvidia-cap{minor}", major, minor))
    return nodes


def _is_nvidia(path: str) -> bool:
    return any(part.startswith("nvidia") for part in PurePosixPath(path).parts[1:3])

"""Keeps the host's capability nodes, and the specification of the GPU Operator's own pods, in step with MIG instances.

NVIDIA's mig-manager does so after each change, and it must not run where gpuplan works. Takes the GPUs as observed and
the driver's numbers; makes the nodes below /dev/nvidia-caps that are missing, and adds them to NVIDIA's specification
management.nvidia.com/gpu, by an atomic rename. Nodes of instances that are gone stay: the driver refuses to open them,
and a specification that names a missing node would keep every pod of the operator from starting. Pods of gpuplan's
devices need none of it. Never writes another file, and nothing where the host's /dev is not visible.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kube.change_log import ChangeLog
from nodeagent.cdi.device_numbers import read_device_numbers
from nodeagent.cdi.driver_files import read_document, well_formed
from nodeagent.handover.files import Identity, identity, replace_file
from nodeagent.hardware.driver import ObservedGpu

log = logging.getLogger(__name__)
MANAGEMENT_FILE = "management.nvidia.com-gpu.yaml"
"""As NVIDIA's toolkit and its mig-manager name it."""
CONTROL_NODE = "/dev/nvidiactl"
CAPABILITIES = "/dev/nvidia-caps"
READ_ONLY = stat.S_IFCHR | 0o444
"""Type and mode of a capability's node, as the driver's own tools make it."""
_Basis = tuple[frozenset[tuple[int | None, int, int]], Identity | None]
"""What the last refresh was made from: instances, and the file."""


class HostDevices:
    """Call `refresh` once a pass: it does something only after instances or NVIDIA's file have changed."""

    def __init__(self, folder: Path, *, proc: Path, mknod: Callable[[Path, int, int], None] = os.mknod) -> None:
        """`folder` has NVIDIA's generated specification; the host's root is that of process 1 in `proc`."""
        self._file = folder / MANAGEMENT_FILE
        self._proc, self._root, self._mknod = proc, proc / "1" / "root", mknod
        self._done: _Basis | None = None
        self._change_log = ChangeLog(log)

    def refresh(self, gpus: Iterable[ObservedGpu]) -> str:
        """Returns why it was not possible; it is tried again in the next pass."""
        instances = frozenset(
            (gpu.minor, instance.id, compute.id)
            for gpu in gpus
            for instance in gpu.instances
            for compute in instance.compute
        )
        file = identity(self._file)  # before reading: what the toolkit writes from now on is newer
        if (instances, file) == self._done:
            return ""
        try:
            problem = self._refresh(file)
        except OSError as error:
            problem = str(error)
        if problem:
            problem = f"pods of the GPU Operator may not see new MIG instances, the host is not up to date: {problem}"
        self._change_log.warn(problem)
        self._done = None if problem else (instances, file)
        return problem

    def _refresh(self, file: Identity | None) -> str:
        document = read_document(self._file)
        nodes = _management_nodes(document)
        dev = self._root / _dev_root(nodes).lstrip("/")
        if not (dev / CONTROL_NODE.lstrip("/")).exists():
            return ""  # not the host's /dev, or no driver: there is nothing to add to
        numbers = read_device_numbers(self._proc)
        major = numbers.major("nvidia-caps")
        if major is None:
            return ""
        names = [f"{CAPABILITIES}/nvidia-cap{minor}" for minor in sorted(numbers.capabilities.values())]
        minors = dict(zip(names, sorted(numbers.capabilities.values()), strict=True))
        for name, minor in minors.items():
            self._make(dev / name.lstrip("/"), os.makedev(major, minor))
        listed = {node.get("path") for node in nodes}
        missing = [name for name in names if name not in listed]
        if nodes and missing:
            self._add(document, nodes, missing, file)
        return "; ".join(problem for _, problem in sorted(numbers.problems.items()))

    def _make(self, path: Path, device: int) -> None:
        try:
            if path.stat().st_rdev == device:
                return
            path.unlink()  # the driver was loaded again, and its major is another one
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
        self._mknod(path, READ_ONLY, device)

    def _add(self, document: object, nodes: list[Any], missing: Sequence[str], file: Identity | None) -> None:
        prefix = _dev_root(nodes).rstrip("/")
        nodes += [{"path": name, "hostPath": f"{prefix}{name}"} if prefix else {"path": name} for name in missing]
        text = yaml.safe_dump(document, sort_keys=False).encode()
        if identity(self._file) == file:  # else the toolkit has just written it: the next pass reads that
            replace_file(self._file, text)


def _management_nodes(document: object) -> list[Any]:
    """Of the device `all`: the very list in the document."""
    devices = document.get("devices") if isinstance(document, Mapping) else None
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, Mapping) and device.get("name") == "all" and well_formed(device.get("containerEdits")):
            found: list[Any] = device["containerEdits"].get("deviceNodes") or []
            return found
    return []


def _dev_root(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Of the host: the driver's own tree where the GPU Operator's container runs it, by the paths that NVIDIA wrote."""
    for node in nodes:
        if node.get("path") == CONTROL_NODE:
            return str(node.get("hostPath") or CONTROL_NODE).removesuffix(CONTROL_NODE) or "/"
    return "/"

"""Reads the numbers of the driver's device nodes from /proc: majors, and the minor of each MIG capability.

A live GPU or compute instance has a file `access` below `driver/nvidia/capabilities`, in which the driver names the
minor of the node that grants it; GPUs are numbered there by the minor of /dev/nvidia<N>. Takes the directory of the
host's procfs, returns a value; a directory that cannot be read gives a `problem`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

Capability: TypeAlias = tuple[int, int, int | None]
"""Minor of the GPU, GPU instance, compute instance (None: the GPU instance itself)."""

_ACCESS = re.compile(r"gpu(\d+)/mig/gi(\d+)(?:/ci(\d+))?/access")
_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE)
_MAJOR = re.compile(r"\s*(\d+)\s+(\S+)\s*")
_EARLIER_NAMES = {"nvidia": "nvidia-frontend"}
"""Drivers before 550.40 registered the GPUs' nodes under this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNumbers:
    """As of one moment: the driver numbers capabilities by instance, and instances come and go."""

    majors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    capabilities: Mapping[Capability, int] = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""
    """Why something that should be here could not be read."""

    def major(self, name: str) -> int | None:
        """As /proc/devices has it."""
        return self.majors.get(name, self.majors.get(_EARLIER_NAMES.get(name, "")))


def read_device_numbers(proc: Path) -> DeviceNumbers:
    """`proc` is the procfs of the host: some runtimes cover the driver's part of a container's own."""
    try:
        majors = _majors((proc / "devices").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        return DeviceNumbers(problem=f"{proc / 'devices'} cannot be read: {error}")
    root = proc / "driver" / "nvidia" / "capabilities"
    capabilities: dict[Capability, int] = {}
    try:
        for path in sorted(root.glob("gpu*/mig/gi*/access")) + sorted(root.glob("gpu*/mig/gi*/ci*/access")):
            name = _ACCESS.fullmatch(path.relative_to(root).as_posix())
            minor = _read_minor(path)
            if name is not None and minor is not None:
                capabilities[int(name[1]), int(name[2]), int(name[3]) if name[3] else None] = minor
    except (OSError, ValueError) as error:
        return DeviceNumbers(majors=majors, problem=f"the capability files in {root} cannot be read: {error}")
    problem = "" if root.is_dir() else f"the agent does not see the driver's capability files in {root}"
    return DeviceNumbers(majors=majors, capabilities=capabilities, problem=problem)


def _read_minor(path: Path) -> int | None:
    try:
        found = _MINOR.search(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None  # the instance was destroyed meanwhile
    if found is None:
        raise ValueError(f"{path} names no DeviceFileMinor")
    return int(found[1])


def _majors(text: str) -> dict[str, int]:
    """Of the character devices; the first name of a number counts."""
    characters = text.partition("Block devices:")[0]
    rows = (match for line in characters.splitlines() if (match := _MAJOR.fullmatch(line)))
    found: dict[str, int] = {}
    for row in rows:
        found.setdefault(row[2], int(row[1]))
    return found

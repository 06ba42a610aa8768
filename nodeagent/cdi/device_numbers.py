"""Reads the numbers of the driver's device nodes from /proc: majors, and the minor of each MIG capability.

A live GPU or compute instance has a file `access` below `driver/nvidia/capabilities`, in which the driver names the
minor of the node that grants it; GPUs are numbered there by the minor of /dev/nvidia<N>. Takes the directory of the
host's procfs, returns a value; what cannot be read gives a problem, of its GPU alone where it is one GPU's: never a
guess.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from nodeagent.hardware.driver import ObservedGpu

Capability: TypeAlias = tuple[int, int, int | None]
"""Minor of the GPU, GPU instance, compute instance (None: the GPU instance itself)."""

_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE)
_MAJOR = re.compile(r"\s*(\d+)\s+(\S+)\s*")
_MINORS = {"nvidia": range(254), "nvidia-caps": range(3, 3 + 32 * 15 * 9)}
"""All that a GPU, or an instance or a part of one, can have: 32 GPUs in 15 instances of up to eight parts."""
_EARLIER_NAMES = {"nvidia": "nvidia-frontend"}
"""Drivers before 550.40 registered the GPUs' nodes under this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNumbers:
    """As of one moment: the driver numbers capabilities by instance, and instances come and go."""

    majors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    capabilities: Mapping[Capability, int] = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""
    """Why no capability could be read, or nothing at all."""
    problems: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """Why not every capability of one GPU could be read, by its minor."""

    def major(self, name: str) -> int | None:
        """As /proc/devices has it."""
        return self.majors.get(name, self.majors.get(_EARLIER_NAMES.get(name, "")))


def numbers_of(
    ids: Iterable[str], gpus: Collection[ObservedGpu], known: DeviceNumbers
) -> dict[str, frozenset[tuple[int, int]] | None]:
    """Major and minor of the device files behind each of these ids, of all that may be meant while a GPU cannot be
    read; None where these are not known."""
    if known.majors and known.major("nvidia") is None:
        return dict.fromkeys(ids, frozenset())  # no driver is loaded, as none is while something has it open
    return {device_id: _numbers(device_id, gpus, known) for device_id in ids}


def _numbers(device_id: str, gpus: Collection[ObservedGpu], known: DeviceNumbers) -> frozenset[tuple[int, int]] | None:
    whole = {(known.major("nvidia"), gpu.minor) for gpu in gpus if gpu.uuid and gpu.uuid in device_id}
    instances = {
        (gpu.minor, instance.id)
        for gpu in gpus
        for instance in gpu.instances
        if any(compute.uuid in device_id for compute in instance.compute)
    }
    parts = {
        (known.major("nvidia-caps"), minor)
        for (gpu_minor, gi, _), minor in known.capabilities.items()
        if (gpu_minor, gi) in instances
    }
    if not whole | instances and (not gpus or any(gpu.problem for gpu in gpus)):
        name = "nvidia-caps" if "MIG-" in device_id else "nvidia"
        return _every(known.major(name), _MINORS[name])
    found = frozenset((a, b) for a, b in whole | parts if a is not None and b is not None)
    return None if (instances and not parts) or len(found) < len(whole | parts) else found


@cache
def _every(major: int | None, minors: range) -> frozenset[tuple[int, int]] | None:
    """One set for all ids, since it is large."""
    return None if major is None else frozenset((major, minor) for minor in minors)


def read_device_numbers(proc: Path) -> DeviceNumbers:
    """`proc` is the procfs of the host: some runtimes cover the driver's part of a container's own."""
    try:
        majors = _majors((proc / "devices").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        return DeviceNumbers(problem=f"{proc / 'devices'} cannot be read: {error}")
    root = proc / "driver" / "nvidia" / "capabilities"
    capabilities: dict[Capability, int] = {}
    problems: dict[int, str] = {}
    try:
        for gpu, directory in _numbered(root, "gpu"):
            try:
                capabilities.update(_capabilities(gpu, directory / "mig"))
            except (OSError, ValueError) as error:
                problems[gpu] = f"the capability files in {directory} cannot be read: {error}"
    except OSError as error:
        return DeviceNumbers(majors=majors, problem=f"the capability files in {root} cannot be read: {error}")
    problem = "" if root.is_dir() else f"the agent does not see the driver's capability files in {root}"
    return DeviceNumbers(majors=majors, capabilities=capabilities, problem=problem, problems=problems)


def _capabilities(gpu: int, mig: Path) -> Iterator[tuple[Capability, int]]:
    """Of the instances of one GPU; any of them may be destroyed meanwhile."""
    for instance, directory in _numbered(mig, "gi"):
        places = [(None, directory), *_numbered(directory, "ci")]
        for compute, place in places:
            if (minor := _read_minor(place / "access")) is not None:
                yield (gpu, instance, compute), minor


def _numbered(directory: Path, prefix: str) -> list[tuple[int, Path]]:
    """The entries named by the prefix and a number; none where the directory is gone."""
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return [(int(number), directory / f"{prefix}{number}") for number in sorted(numbers) if number.isdecimal()]


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
    found: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        if row := _MAJOR.fullmatch(line):
            found.setdefault(row[2], int(row[1]))
    return found

"""Names the programs that have the driver's device files open: DCGM and exporters hold GPUs that no list shows.

Takes the host's procfs and the pods of the node, returns one `DriverClient` for each program. A node is recognised by
its device number, which a name cannot fake. For people only: what is not found here is not free, and what cannot be
read is left out. Never follows what lies outside /dev, where a file system that hangs would keep the agent.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeagent.cdi.device_numbers import read_device_numbers
from nodeagent.observed.pods import NodePod

KEPT_SECONDS = 5.0
NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DriverClient:
    """One program of one pod, or of none."""

    pod: str
    """Empty: a program of the node itself, or of a pod that has left the API."""
    program: str
    minors: tuple[int, ...]
    """Of the GPUs that it has open; the control node's is no GPU's."""

    def __str__(self) -> str:
        return f"{self.program} ({f'pod {self.pod}' if self.pod else 'in no pod'})"


class DriverClients:
    """Needs the node's PID namespace, which the agent has."""

    def __init__(self, proc: Path, clock: Callable[[], float]) -> None:
        self._proc, self._clock = proc, clock
        self._read_at = float("-inf")
        self._found: tuple[DriverClient, ...] = ()

    def __call__(self, pods: Iterable[NodePod]) -> tuple[DriverClient, ...]:
        """As of now, or of some seconds ago: there are many files to read."""
        if self._clock() - self._read_at >= KEPT_SECONDS:
            self._read_at = self._clock()
            self._found = tuple(sorted(self._read(tuple(pods))))
        return self._found

    def _read(self, pods: tuple[NodePod, ...]) -> set[DriverClient]:
        majors = read_device_numbers(self._proc).majors
        ours = {number for name, number in majors.items() if name.startswith("nvidia")}
        gpus = (majors.get("nvidia"), majors.get("nvidia-frontend"))
        found: dict[tuple[str, str], set[int]] = {}
        for process in self._proc.glob("[0-9]*"):
            if process.name == str(os.getpid()):
                continue
            numbers = {number for number in _open_devices(process) if number[0] in ours}
            if numbers and (key := _identity(process, pods)):
                found.setdefault(key, set()).update(minor for major, minor in numbers if major in gpus)
        return {DriverClient(pod=pod, program=name, minors=tuple(sorted(m))) for (pod, name), m in found.items()}


def sentence(clients: Iterable[object]) -> str:
    """The first of them; empty for none."""
    found = [str(client) for client in clients]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def _open_devices(process: Path) -> Iterator[tuple[int, int]]:
    """Major and minor."""
    try:
        for link in (process / "fd").iterdir():
            if os.readlink(link).startswith("/dev/"):
                number = link.stat().st_rdev
                yield os.major(number), os.minor(number)
    except OSError:
        return  # it has ended, or is not ours to read


def _identity(process: Path, pods: Iterable[NodePod]) -> tuple[str, str] | None:
    """Pod and program; None where it has ended."""
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        cgroup = (process / "cgroup").read_text()
    except OSError:
        return None
    # systemd's cgroup driver writes the UID with underscores.
    pod = next((p.title for p in pods if p.uid and (p.uid in cgroup or p.uid.replace("-", "_") in cgroup)), "")
    return pod, command.rpartition("/")[2] or "a program"

"""Reads the node's processes from /proc: of which pod each is, and which of them have a device file open.

Takes the host's procfs, returns frozen values, or a `NoAnswer` with the reason. The kernel's cgroup of a process names
its pod by UID, in the spelling of either cgroup driver and of both cgroup versions; from within a cgroup namespace too,
where the path is relative and only the reader's own pod has no name. Device files are compared by number, since a
name is whatever a container calls it. A file is never asked for news: a mount that hangs must not hold up the agent.
Proves nothing by itself: whether the host's processes are seen at all is asked of the kubelet.
"""

import contextlib
import ctypes
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kube.timestamps import api_time
from nodeagent.observed.kubelet import NoAnswer

SCAN_SECONDS = 5.0
"""A node with so many processes that this does not suffice is one of which nothing is known."""
_POD = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./\s]|$)", re.M)
"""`pod<UID>` of cgroupfs, or `kubepods-burstable-pod<UID>.slice` of systemd, with underscores. A static pod's UID is a
hash without dashes."""
_BY_OTHERS = "run-|[^/\n]*(?:kube|containerd|cri|docker|podman|k[038]s|rke2|lxd|incus|isula|nomad|ssh|cron|atd)"
"""Units below which people and pods start programs: container runtimes, systemd-run, shells and timers."""
_SERVICE = re.compile(
    rf"(?:\d+:[^:\n]*:(?:/\.\.)*(?:/|/system\.slice(?:/system-[^/\n]+\.slice)?(/(?!{_BY_OTHERS})[^/\n]+\.service)?)?\n)+"
)
"""The whole file of what systemd itself has started; a controller of cgroups v1 may have it further up."""
_STATX = struct.Struct("@28xH98xII120x")
"""Mode, and both device numbers, in `struct statx`."""
_LIBC = ctypes.CDLL(None)
_AT_FDCWD, _WITHOUT_NEWS, _BASIC = -100, 0x4000, 0x7FF
_CHARACTER_DEVICE, _FILE_TYPE = 0o020000, 0o170000
DeviceNumber = tuple[int, int]
"""Major and minor of a character device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One that lives: a zombie without threads has nothing open any more."""

    pid: int
    program: str
    """The first 15 bytes of its name."""
    pods: frozenset[str] = frozenset()
    """UIDs in its cgroups: none for a process of the host, several for a pod within a pod."""
    service: bool = False
    """It is of a service of the node, where only the node's root can put a process."""
    began_at: float = 0.0
    """Epoch seconds; 0 where it is not known."""
    up_seconds: float = 0.0
    """Of the node when it began: unlike the time of day it is not set; 0 where it is not known."""
    opened: frozenset[DeviceNumber] | None = None
    """Of the devices that were asked for, those that it has open; None: any, for its files were not read."""

    @property
    def since(self) -> str:
        """As the API writes times."""
        return api_time(datetime.fromtimestamp(self.began_at, UTC)) if self.began_at else ""

    @property
    def named(self) -> str:
        """For people, who may have to end it."""
        return f"process {self.pid} ({', since '.join(filter(None, (self.program, self.since)))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTable:
    """One moment; by process id."""

    processes: tuple[Process, ...] = ()

    def pods(self) -> Mapping[str, list[Process]]:
        """By pod UID."""
        found: dict[str, list[Process]] = {}
        for process in self.processes:
            for uid in process.pods:
                found.setdefault(uid, []).append(process)
        return found


class Processes:
    """One per agent; keeps nothing."""

    def __init__(self, proc: Path = Path("/proc"), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock = proc, clock

    def scan(self) -> ProcessTable | NoAnswer:
        """All of them."""
        deadline = self._clock() + SCAN_SECONDS
        found: list[Process] = []
        try:
            booted_at = self._booted_at()
            # The youngest first: one that others of its kind replace quickly is read before it has ended.
            for pid in sorted((int(name) for name in os.listdir(self._proc) if name.isdecimal()), reverse=True):
                if self._clock() > deadline:
                    return _late("the node's processes", found)
                if (process := self._read(pid, booted_at)) is not None:
                    found.append(process)
        except (OSError, ValueError, IndexError) as error:
            return NoAnswer(reason=f"the node's processes cannot be read: {error!r}")
        return ProcessTable(processes=tuple(reversed(found)))

    def holders(self, numbers: Collection[DeviceNumber], *, everyone: bool = False) -> tuple[Process, ...] | NoAnswer:
        """Those that have one of these devices open, and which; but for this one, since the driver's library opens
        every GPU, and the node's first, which is no pod's and may hide its files.

        What processes of pods have open, which tenants choose, and the node's services is read only where it is asked
        for.
        """
        deadline = self._clock() + SCAN_SECONDS
        found, read, wanted = list[Process](), {os.getpid(), 1}, frozenset(numbers)
        for _ in range(2):  # for those that others have started which have ended meanwhile
            table = self.scan()
            if isinstance(table, NoAnswer):
                return table
            for process in (each for each in table.processes if everyone or not (each.pods or each.service)):
                theirs = set[DeviceNumber]()
                try:
                    for number in self._open_files(process.pid) if process.pid not in read else ():
                        if self._clock() > deadline:
                            return _late(f"what {process.named} has open")
                        if number in wanted:
                            theirs.add(number)
                            if len(theirs) == len(wanted):
                                break
                    found += (replace(process, opened=frozenset(theirs)),) if theirs else ()
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it has ended
                except OSError as error:
                    if everyone and not isinstance(error, PermissionError):
                        return NoAnswer(reason=f"the open files of process {process.pid} cannot be read: {error}")
                    # It may have any of them open; for people it is named only where it has.
                    hidden = replace(process, program=f"{process.program}, whose files are hidden")
                    found += () if everyone else (hidden,)
                read.add(process.pid)
        return tuple(found)

    def _read(self, pid: int, booted_at: float) -> Process | None:
        folder = self._proc / str(pid)
        try:
            cgroup = (folder / "cgroup").read_text(errors="replace")
            stat = (folder / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None  # it has ended
        # The name may hold anything, parentheses too.
        program, _, rest = stat.partition("(")[2].rpartition(")")
        state, *fields = rest.split()
        # The first thread of a process may have ended before the others.
        if state in "ZX" and int(fields[16]) <= 1:
            return None
        up_seconds = int(fields[18]) / os.sysconf("SC_CLK_TCK")
        return Process(
            pid=pid,
            program=program,
            pods=frozenset(uid.replace("_", "-") for uid in _POD.findall(cgroup)),
            service=bool((found := _SERVICE.fullmatch(cgroup)) and found[1]),
            began_at=booted_at and booted_at + up_seconds,
            up_seconds=up_seconds,
        )

    def _booted_at(self) -> float:
        path = self._proc / "stat"
        rows = path.read_text().splitlines() if path.exists() else ()
        return next((float(row.split()[1]) for row in rows if row.startswith("btime ")), 0.0)

    def _open_files(self, pid: int) -> Iterator[DeviceNumber | None]:
        """One after another, of which there may be millions; None for what is no device."""
        folder = self._proc / str(pid)
        # Of a process whose first thread has ended only the others show what it has open.
        with os.scandir(folder / "fd") as found:
            threads = [folder] if any(found) else (folder / "task").iterdir()
        for files in (thread / "fd" for thread in threads):
            # This thread may have ended.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), os.scandir(files) as found:
                yield from (_device_number(each.path) for each in found)


def _late(what: str, found: Collection[Process] = ()) -> NoAnswer:
    """With the pod that has most of those that were found."""
    most = Counter(uid for process in found for uid in process.pods).most_common(1)
    whose = "".join(f", and {number} of {len(found)} were of pod UID {uid}" for uid, number in most)
    return NoAnswer(reason=f"reading {what} took longer than {SCAN_SECONDS:g} s{whose}")


def _device_number(path: str) -> DeviceNumber | None:
    """Of what the link leads to; None where that is no character device, or closed meanwhile. Raises OSError."""
    answer = ctypes.create_string_buffer(_STATX.size)
    if _LIBC.statx(_AT_FDCWD, os.fsencode(path), _WITHOUT_NEWS, _BASIC, answer):
        # Another user's file system keeps off root, too, and has no devices. Who may not read the link knows nothing.
        with contextlib.suppress(FileNotFoundError):
            if (target := os.readlink(path)).startswith("/dev/"):
                raise OSError(f"{target} cannot be examined")
        return None
    mode, major, minor = _STATX.unpack(answer.raw)
    return (major, minor) if mode & _FILE_TYPE == _CHARACTER_DEVICE else None

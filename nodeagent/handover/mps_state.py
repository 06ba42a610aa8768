"""The file by which the supervisor of MPS control daemons reports which of them answer, and whether it runs itself.

`mps.json` is written by the supervisor alone. It holds the lock of `mps.lock` for as long as it runs, so that a file
that an ended supervisor left behind is never believed. Takes and returns values; a bad file comes back as `Unreadable`.
"""

import fcntl
from pathlib import Path
from typing import IO, Literal

from pydantic import TypeAdapter

from nodeagent.handover.config import PluginFiles, Text
from nodeagent.handover.files import Unreadable, hold_lock, read_json, wire, write_json


@wire
class MpsDaemon:
    """The daemon of one GPU with slices."""

    gpu: Text
    ready: bool  # it answered the latest check
    problem: str = ""
    alarm: str = ""  # what happened lately and was put right: a person should know
    alarms: int = 0  # since the supervisor started
    pid: int = 0  # of its process, where it is known: gone before the next check is due, it is gone now


@wire
class MpsState:
    daemons: tuple[MpsDaemon, ...] = ()
    leftover: tuple[str, ...] = ()  # directories of daemons that no GPU needs and that have clients still
    version: Literal[1] = 1


_STATE = TypeAdapter(MpsState)


def write_mps(files: PluginFiles, state: MpsState) -> None:
    write_json(files.mps, _STATE, state)


def read_mps(files: PluginFiles) -> MpsState | Unreadable | None:
    """None where no supervisor runs, or it has reported nothing yet."""
    if not _is_locked(files):
        return None
    return read_json(files.mps, _STATE)


def hold_mps_lock(files: PluginFiles) -> IO[str] | None:
    """The open file whose lock ends with this process; None where another supervisor has it."""
    if lock := hold_lock(files.mps_lock):
        files.mps.unlink(missing_ok=True)  # what an earlier supervisor found
    return lock


def is_running(pid: int) -> bool:
    """Whether there is such a process; True where its id is not known."""
    if not pid:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    # The state follows the name, which may hold anything. What nothing waits for stays a zombie, and serves no client.
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def _is_locked(files: PluginFiles) -> bool:
    try:
        with files.mps_lock.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False

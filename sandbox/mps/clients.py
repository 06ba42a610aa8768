"""Clients of the MPS stand-in: the kubelet stand-in connects one when a container with an MPS slice starts.

Each call is one write of the state file in the pipe directory. The first client starts a server, as in the real
daemon; nothing is limited, and nothing is refused but a daemon that is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox.mps.commands import COMMANDS
from sandbox.mps.statefile import load, locked, save, stop


class NoDaemonError(LookupError):
    """No control daemon runs on this pipe directory."""


def connect(pipe_directory: Path | str, pid: int, device: str, command: str = "") -> None:
    """A process opens the GPU (a UUID) through the daemon of the pipe directory."""
    pipe = str(pipe_directory)
    with locked(_existing(pipe)):
        state = _state(pipe)
        if not state["servers"]:
            COMMANDS["start_server"](state, [])
        server = next(iter(state["servers"].values()))
        server["clients"].append({"pid": pid, "device": device, "command": command})
        save(pipe, state)


def disconnect(pipe_directory: Path | str, pid: int) -> None:
    """The process ended. Unknown pids and daemons that are gone are no error: its clients died with it."""
    pipe = str(pipe_directory)
    if load(pipe) is None:
        return
    with locked(pipe):
        state = load(pipe)
        if state is None:
            return
        for server in state["servers"].values():
            server["clients"] = [client for client in server["clients"] if client["pid"] != pid]
        save(pipe, state)


def connected(pipe_directory: Path | str) -> list[int]:
    """The pids of every client, in the order they came."""
    state = _state(str(pipe_directory))
    return [client["pid"] for server in state["servers"].values() for client in server["clients"]]


def kill(pipe_directory: Path | str) -> None:
    """The daemon dies as by SIGKILL: the command finds none, and a new one starts from defaults."""
    stop(str(pipe_directory))


def hang(pipe_directory: Path | str, seconds: float) -> None:
    """Every command takes this much longer from now on."""
    pipe = str(pipe_directory)
    with locked(_existing(pipe)):
        state = _state(pipe)
        state["hang_seconds"] = seconds
        save(pipe, state)


def _existing(pipe: str) -> str:
    _state(pipe)
    return pipe


def _state(pipe: str) -> dict[str, Any]:
    state = load(pipe)
    if state is None:
        raise NoDaemonError(f"no MPS control daemon on {pipe}")
    return state

"""Clients of the MPS stand-in: the kubelet stand-in connects one when a container with an MPS slice starts.

Each call is one write of the state file in the pipe directory. The first client starts a server, as in the real
daemon; nothing is limited, and nothing is refused but a daemon that is not there.
"""

from pathlib import Path
from typing import Any

from sandbox.mps.statefile import load, locked, save


class NoDaemonError(LookupError):
    """No control daemon runs on this pipe directory."""


def connect(pipe_directory: Path | str, pid: int, device: str) -> None:
    """A process opens the GPU (a UUID) through the daemon of the pipe directory."""
    pipe = str(pipe_directory)
    _state(pipe)  # a directory without a daemon may not be there
    with locked(pipe):
        state = _state(pipe)
        if not state["servers"]:
            state["servers"][str(state["next_server"])] = {"clients": []}
            state["next_server"] += 1
        server = next(iter(state["servers"].values()))
        server["clients"].append({"pid": pid, "device": device})
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


def _state(pipe: str) -> dict[str, Any]:
    state = load(pipe)
    if state is None:
        raise NoDaemonError(f"no MPS control daemon on {pipe}")
    return state

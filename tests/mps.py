"""Does to a simulated MPS daemon what happens to real ones: it hangs, dies or is busy. Shows its clients.

Each function reads or writes the daemon's state file in the pipe directory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.mps.statefile import alone, load, locked, save, stop


def connected(pipe: Path) -> list[int]:
    """The pids of every client, in the order they came."""
    state = load(str(pipe))
    assert state is not None, f"no MPS control daemon on {pipe}"
    return [client["pid"] for server in state["servers"].values() for client in server["clients"]]


@contextmanager
def talking(pipe: Path) -> Iterator[None]:
    """A program talks to the daemon, which turns every other one away."""
    with alone(str(pipe)) as served:
        assert served, f"the daemon on {pipe} talks to another program"
        yield


def kill(pipe: Path) -> None:
    """The daemon dies as by SIGKILL: the command finds none, and a new one starts from defaults."""
    stop(str(pipe))


def hang(pipe: Path, seconds: float) -> None:
    """Every command takes this much longer from now on."""
    with locked(str(pipe)):
        state = load(str(pipe))
        assert state is not None, f"no MPS control daemon on {pipe}"
        save(str(pipe), {**state, "hang_seconds": seconds})

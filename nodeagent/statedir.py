"""The agent's directory on the node, and the lock that admits only one agent there.

Takes the state directory, returns the paths of what is in it. The lock is an flock: it ends with the process, however
that died, so a restarted agent never waits for a stale one. It must be taken before the first driver write.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from nodeagent.handover.config import PluginFiles


class AnotherAgentError(Exception):
    """A second agent was started on this node."""


class StateDir:
    def __init__(self, root: Path) -> None:
        self.root, self.plugin = root, PluginFiles(root)
        self.journal, self.holdings = root / "journal", root / "holdings.json"
        self.compute_modes, self.taint = root / "compute-modes.json", root / "taint.json"
        self.nvidia_switch = root / "nvidia-switch.json"

    def lock(self) -> "AgentLock":
        """Raises AnotherAgentError where another process holds it."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.plugin.directory.mkdir(exist_ok=True)
        return AgentLock(self.root / "agent.lock")


class AgentLock:
    """Held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise AnotherAgentError(
                f"{path} is held by process {holder or '?'}: one agent per node; stop that one first"
            ) from error
        # For people alone: an agent that does not start on a full disk could not report that it is full.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._file)

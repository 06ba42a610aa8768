"""The agent's directory on the node, and the lock that admits only one agent there.

Takes the state directory, returns the paths of what is in it. The lock is an flock: it ends with the process, however
that died, so a restarted agent never waits for a stale one. It must be taken before the first driver write.
"""

import contextlib
import os
from pathlib import Path
from typing import IO

from nodeagent.handover.config import PluginFiles
from nodeagent.handover.files import hold_lock


class AnotherAgentError(Exception):
    """A second agent was started on this node."""


class StateDir:
    def __init__(self, root: Path) -> None:
        self.root, self.plugin = root, PluginFiles(root)
        self.journal, self.holdings = root / "journal", root / "holdings.json"
        self.compute_modes, self.taint = root / "compute-modes.json", root / "taint.json"
        self.nvidia_switch = root / "nvidia-switch.json"

    def lock(self) -> IO[str]:
        """Held until it is closed. Raises AnotherAgentError where another process holds it."""
        path = self.root / "agent.lock"
        lock = hold_lock(path)
        if lock is None:
            holder = path.read_text(errors="replace").strip() or "?"
            raise AnotherAgentError(f"{path} is held by process {holder}: one agent per node; stop that one first")
        # For people alone: an agent that does not start on a full disk could not report that it is full.
        with contextlib.suppress(OSError):
            os.ftruncate(lock.fileno(), 0)
            os.pwrite(lock.fileno(), f"{os.getpid()}\n".encode(), 0)
        self.plugin.directory.mkdir(exist_ok=True)
        return lock

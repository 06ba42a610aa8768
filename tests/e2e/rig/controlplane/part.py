"""One server of the control plane: a process that can be started, stopped, killed, frozen and started again.

Takes a command and a check that it serves; runs a process on a leash, its log in a file. A server that does not come
up in time raises `ControlPlaneFailed` with the end of its log. It ends only what it started.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.control_plane import ControlPlaneFailed
from sandbox.supervisor import tail
from tests.e2e.rig.controlplane.leashed import LEASH

LOOK_SECONDS = 0.1
STOP_SECONDS = 10.0


class Part:
    """One server process."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, ready: Callable[[], bool]) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, str(LEASH), *command]
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server itself; None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process; `wait` until it serves."""
        if self.pid is not None:
            return
        self._reap(STOP_SECONDS)  # of a server that ended by itself
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def wait(self, seconds: float) -> None:
        """Return as soon as the server serves."""
        deadline = time.monotonic() + seconds
        while not self._ready():
            if self.pid is None:
                raise ControlPlaneFailed(f"{self.name} ended. Its log {self.log} ends:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ControlPlaneFailed(f"{self.name} did not serve in {seconds:.0f} s: {self.log}\n{self.tail()}")
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that was not enough."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self._reap(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL: what a crash looks like."""
        self.signal(signal.SIGKILL)
        self._reap(STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT, to the server if it runs."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def tail(self, lines: int = 8) -> str:
        """The end of the log."""
        return tail(self.log, lines)

    def _reap(self, seconds: float) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin:
            process.stdin.close()

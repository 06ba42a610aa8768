"""Runs child processes and restarts those that die, as a Deployment or DaemonSet would.

Takes a name, a module and its arguments, and runs the process with a log file until `stop`, which waits for the end. It
ends only what it started. A crash is followed by a back-off from 0.2 to 5 s, which is reset after 30 s without a crash.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FIRST_BACKOFF_SECONDS = 0.2
LAST_BACKOFF_SECONDS = 5.0
GOOD_RUN_SECONDS = 30.0
STOP_SECONDS = 5.0


def tail(log: Path, lines: int = 8) -> str:
    """The end of a log file; '' where there is none yet."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


class Child:
    """One supervised process."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], *, log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._command = [sys.executable, "-m", "sandbox.child", module, *arguments]
        self._env = dict(env)
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"supervise-{name}", daemon=True)

    @property
    def pid(self) -> int | None:
        """Process id of the present run; None between two runs."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def tail(self, lines: int = 8) -> str:
        """The end of the log, of all runs together."""
        return tail(self.log, lines)

    def start(self) -> None:
        """Start the process and watch over it."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the process to end (SIGTERM), then make it."""
        self._stopping.set()
        process = self._process
        if process:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        self._thread.join(STOP_SECONDS + 2)

    def _run(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            self._run_once()
            if self._stopping.is_set():
                return
            self.restarts += 1
            backoff = FIRST_BACKOFF_SECONDS if time.monotonic() - began > GOOD_RUN_SECONDS else backoff
            self._stopping.wait(backoff)
            backoff = min(2 * backoff, LAST_BACKOFF_SECONDS)

    def _run_once(self) -> None:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **self._env}
            )
            self._process = process
            if self._stopping.is_set():
                process.terminate()
            while process.poll() is None:
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    if self._stopping.is_set():
                        process.kill()
            if process.stdin:
                process.stdin.close()


class Supervisor:
    """All child processes of one sandbox."""

    def __init__(self, log_directory: Path) -> None:
        self._logs = log_directory
        self._lock = threading.Lock()
        self._children: dict[str, Child] = {}

    @property
    def children(self) -> Mapping[str, Child]:
        """Every child by name."""
        return dict(self._children)

    def add(self, name: str, module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """Start a module as a supervised process; `name` also names its log file."""
        child = Child(name, module, arguments, log=self._logs / f"{name}.log", env=env or {})
        with self._lock:
            self._children[name] = child
        child.start()
        return child

    def remove(self, name: str) -> None:
        """Stop one child; an unknown name is no error."""
        with self._lock:
            child = self._children.pop(name, None)
        if child:
            child.stop()

    def stop(self) -> None:
        """Stop every child, all at the same time."""
        with self._lock:
            children = list(self._children.values())
            self._children.clear()
        stoppers = [threading.Thread(target=child.stop) for child in children]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()

"""Keeps one machine's state in a JSON file that any number of processes share.

Reading takes the lock shared, writing takes it alone, changes a copy and renames it into place: a process killed at
any point leaves the old or the new state, and a refused call leaves no trace. It does not fsync (the simulation need
not survive a power cut), and never waits for anything but the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from sandbox.driver.state import FORMAT, MachineState


class Store:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock_path = self.path.with_name(self.path.name + ".lock")
        self._thread_lock = threading.Lock()
        self._cached_file: IO[str] | None = None
        self._cached: MachineState | None = None

    def create(self, state: MachineState) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(fcntl.LOCK_EX):
            self._save(state)

    @contextmanager
    def reading(self) -> Iterator[MachineState]:
        """The state as it is. The caller must not change it."""
        with self._locked(fcntl.LOCK_SH):
            yield self._load()

    @contextmanager
    def writing(self) -> Iterator[MachineState]:
        """A copy of the state, saved when the block ends and dropped when it raises."""
        with self._locked(fcntl.LOCK_EX):
            state = parse(self.path.read_text())
            yield state
            self._save(state)

    def close(self) -> None:
        if self._cached_file is not None:
            self._cached_file.close()
        self._cached_file = self._cached = None

    @contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        with self._thread_lock:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, operation)
                yield
            finally:
                os.close(descriptor)

    def _load(self) -> MachineState:
        # The file behind the cached state stays open: its inode cannot be given to a newer file, so the same inode
        # means the same state, however coarse the file system's clock is.
        if self._cached is not None and self._cached_file is not None:
            current, cached = self.path.stat(), os.fstat(self._cached_file.fileno())
            if (current.st_dev, current.st_ino) == (cached.st_dev, cached.st_ino):
                return self._cached
        self.close()
        self._cached_file = self.path.open()
        self._cached = parse(self._cached_file.read())
        return self._cached

    def _save(self, state: MachineState) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(state, indent=1))
            temporary.replace(self.path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def parse(text: str) -> MachineState:
    state = json.loads(text)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"not the state of a simulated machine in format {FORMAT}")
    return cast(MachineState, state)

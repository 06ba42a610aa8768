"""Keeps one machine's state in a JSON file that any number of processes share.

Writing takes a lock, changes a copy and renames it into place: a process killed at any point leaves the old or the new
state, a refused call leaves no trace, and reading needs no lock, because the file is always whole. It does not fsync
(the simulation need not survive a power cut), and never waits for anything but the lock.
"""

import fcntl
import json
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from sandbox.driver import procfs
from sandbox.driver.state import FORMAT, Machine


class Store:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._name = str(path)
        self._lock_path = self.path.with_name(self.path.name + ".lock")
        self._thread_lock = threading.Lock()
        self._seen: _Seen | None = None

    def create(self, state: Machine) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._save(state)

    def read(self) -> Machine:
        """The state as it is. The caller must not change it."""
        seen = self._seen
        if seen is None or not seen.is_file(os.stat(self._name)):
            self._seen = seen = _Seen(self.path)
        return seen.state

    @contextmanager
    def writing(self) -> Iterator[Machine]:
        """A copy of the state, saved when the block ends and dropped when it raises."""
        with self._locked():
            state = parse(self.path.read_text())
            yield state
            self._save(state)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._thread_lock:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _save(self, state: Machine) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(state, indent=1))
            temporary.replace(self.path)
            procfs.show(state, procfs.proc_of(self.path))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


class _Seen:
    """The state as last read, with its file kept open: the inode cannot be given to a newer file meanwhile, so the same
    inode means the same state, however coarse the file system's clock is."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        self._file = os.fstat(descriptor)
        with os.fdopen(os.dup(descriptor)) as file:
            self.state = parse(file.read())

    def is_file(self, other: os.stat_result) -> bool:
        return (self._file.st_dev, self._file.st_ino) == (other.st_dev, other.st_ino)


def parse(text: str) -> Machine:
    state = json.loads(text)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"not the state of a simulated machine in format {FORMAT}")
    return cast(Machine, state)

"""The file in a pipe directory that represents a running MPS control daemon: reading, replacing, locking it.

Plain JSON and few imports, because the stand-in of the command starts again for every command.
"""

from __future__ import annotations

import fcntl
import json
import os

TYPE_CHECKING = False  # `typing` would be a quarter of the command's start-up time
if TYPE_CHECKING:
    from typing import Any

    State = dict[str, Any]

STATE_FILE = ".sandbox-mps.json"
LOCK_FILE = ".sandbox-mps.lock"
SESSION_FILE = ".sandbox-mps.session"


def load(pipe: str) -> State | None:
    try:
        with open(os.path.join(pipe, STATE_FILE), encoding="utf-8") as file:
            state: State = json.load(file)
    except OSError:
        return None
    return state


def save(pipe: str, state: State) -> None:
    path = os.path.join(pipe, STATE_FILE)
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(file.name, path)


def stop(pipe: str) -> None:
    try:
        os.unlink(os.path.join(pipe, STATE_FILE))
    except FileNotFoundError:
        return


class locked:  # noqa: N801 - used as a context manager function; contextlib is not worth its import here
    """Alone with the file until the end of the block."""

    name, how = LOCK_FILE, fcntl.LOCK_EX

    def __init__(self, pipe: str) -> None:
        self._path = os.path.join(pipe, self.name)

    def __enter__(self) -> bool:
        self._file = open(self._path, "w")
        try:
            fcntl.flock(self._file, self.how)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._file.close()


class alone(locked):  # noqa: N801 - as above
    """Whether no other program talks to the daemon; until the end of the block none can."""

    name, how = SESSION_FILE, fcntl.LOCK_EX | fcntl.LOCK_NB

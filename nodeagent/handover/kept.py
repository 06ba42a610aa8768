"""Keeps one value on disk for the next process of the same program.

Takes a path, the value's type as a pydantic TypeAdapter, and what counts where there is no file or it cannot be read. A
file that cannot be written costs the memory at the next start, and nothing before.
"""

import logging
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from kube.change_log import ChangeLog
from nodeagent.handover.files import Unreadable, read_json, write_json

T = TypeVar("T")
log = logging.getLogger(__name__)


class Kept(Generic[T]):
    def __init__(self, path: Path, kind: TypeAdapter[T], nothing: T) -> None:
        self._path, self._kind, self._change_log = path, kind, ChangeLog(log)
        found = read_json(path, kind)
        self.value = self._saved = nothing if found is None or isinstance(found, Unreadable) else found

    def keep(self, value: T) -> str:
        """Why it is not on disk; the next call tries again."""
        self.value, problem = value, ""
        if value != self._saved:
            try:
                write_json(self._path, self._kind, value)
                self._saved = value
            except OSError as error:
                problem = f"{self._path} cannot be written: {error}"
            self._change_log.warn(problem)
        return problem

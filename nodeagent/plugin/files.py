"""Atomic JSON files: a reader sees the old text or the new one, never a half, also after a power cut.

In goes a path and a JSON value, out comes the value or the reason why there is none. Knows nothing of what the files
mean.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file that is there but cannot be used, with the reason for people."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}: {self.reason}"


def write_json(path: Path, value: Any) -> None:
    """Replace the file: temporary file beside it, fsync, rename, fsync of the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_json(path: Path) -> Any | Unreadable | None:
    """The value; None where there is no file (a JSON null is unreadable: no file of ours holds one)."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return Unreadable(path=path, reason=str(error))
    return Unreadable(path=path, reason="holds null") if value is None else value

"""Reads and writes JSON files atomically: a reader sees the old text or the new one, even after a power cut.

Takes a path and the content's type as a pydantic TypeAdapter; returns the content, or the reason why there is none.
Never interprets what a file means.
"""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar, dataclass_transform

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.alias_generators import to_camel

T = TypeVar("T")
Identity = tuple[int, int]
"""Inode and change time: another file under the same name may get the inode of the one before."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def wire(cls: type[T]) -> type[T]:
    """A dataclass in a file: camelCase keys, exact types, and fields that a newer version added are passed over."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    return with_config(ConfigDict(alias_generator=to_camel, strict=True))(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file that is there but cannot be used, with the reason for people."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}: {self.reason}"


def write_json(path: Path, kind: TypeAdapter[T], value: T, *, without_none: bool = False) -> None:
    """Replace the file with the value as JSON, the same text for equal values. Raises ValueError where a text is none
    that the reader would take."""
    found = kind.dump_python(value, mode="json", by_alias=True, exclude_none=without_none)
    content = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    replace_file(path, content, mode=0o600)  # they name pods of all namespaces


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Temporary file in the same directory, fsync, rename, fsync of the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Always the same name: with a number in it, each crash in here would leave another file behind.
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_json(path: Path, kind: TypeAdapter[T]) -> T | Unreadable | None:
    """The value; None where there is no file."""
    try:
        return kind.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        given = f" is {first['input']!r}" if first["type"] != "missing" else ""
        return Unreadable(path=path, reason=f"{where}{given}: {first['msg']}" if where else first["msg"])
    except OSError as error:
        return Unreadable(path=path, reason=str(error))


def hold_lock(path: Path) -> IO[str] | None:
    """The open file whose lock ends with this process, however that dies; None where another one has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # For this user alone, also where another version made it: another user who may open it could hold the lock.
    lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    os.fchmod(lock.fileno(), 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def identity(path: Path) -> Identity | None:
    """Changes whenever the file is replaced or written; None while it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_ctime_ns)


def boot_id(path: Path = BOOT_ID) -> str:
    """Of this boot of the node: another id means that the machine was restarted in between. Empty: not known."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""

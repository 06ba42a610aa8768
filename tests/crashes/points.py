"""Counts where a process touches the world, in one order for all processes, and lets a fault strike at each place.

Hooked are the boundaries and not the code under test: the steps of `replace_file`, removals of files, the driver's
writing calls, requests that write to the API, signals. A file is four places: half written, written, renamed, its
folder synced. A call is one: what strikes may refuse it, lose its answer, or end the process after it. `Disk` knows
what a power cut would leave. Never changes what a call does.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pynvml

from nodeagent.handover import files

T = TypeVar("T")
WRITING_CALLS = (
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlDeviceSetComputeMode",
    "nvmlDeviceSetMigMode",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
)


class Kind(StrEnum):
    FILE = "file"
    DRIVER = "driver"
    API = "API"
    SIGNAL = "signal"


class Answer(StrEnum):
    """What the caller of a call gets."""

    OWN = "its own"
    REFUSED = "not done, and no answer"
    LOST = "done, and no answer"


@dataclass(frozen=True, slots=True)
class Point:
    """One place, the first is number 1."""

    number: int
    process: str
    kind: Kind
    what: str


class Strike(Protocol):
    """What happens where."""

    def answer(self, point: Point) -> Answer: ...

    def happen(self, point: Point) -> None:
        """After what is done at this place; may end its process by raising."""


class NoStrike:
    """Nothing happens."""

    def answer(self, _point: Point) -> Answer:
        return Answer.OWN

    def happen(self, _point: Point) -> None:
        return


class Points:
    """Of one run; hooked between `install` and what it returns."""

    def __init__(self, *roots: Path) -> None:
        """`roots`: the folders that the product writes."""
        self.roots, self.disk = roots, Disk()
        self.reached: list[Point] = []
        self.begun = False
        """Places count from then on."""
        self.strike: Strike = NoStrike()
        self.check: Callable[[Point], None] = lambda _point: None
        """What must hold at each place."""
        self.full: Callable[[], bool] = lambda: False
        """Nothing fits on the disk."""
        self._processes: list[str] = []

    @property
    def counting(self) -> bool:
        """What the test itself does is no place."""
        return self.begun and bool(self._processes)

    @contextmanager
    def of(self, process: str) -> Iterator[None]:
        """What is done within is done by this process."""
        self._processes.append(process)
        try:
            yield
        finally:
            self._processes.pop()

    def reach(self, kind: Kind, what: str) -> None:
        """A place within a file's change."""
        if point := self._next(kind, what):
            self.check(point)
            self.strike.happen(point)

    def call(self, kind: Kind, what: str, act: Callable[[], T], no_answer: Callable[[], T]) -> T:
        """Do it, unless what strikes refuses it. `no_answer` is the caller's answer then, or raises it."""
        point = self._next(kind, what)
        if point is None:
            return act()
        answer = self.strike.answer(point)
        if answer is Answer.REFUSED:
            return no_answer()
        found = act()
        self.check(point)
        self.strike.happen(point)
        return no_answer() if answer is Answer.LOST else found

    def _next(self, kind: Kind, what: str) -> Point | None:
        if not self.counting:
            return None
        self.reached.append(Point(len(self.reached) + 1, self._processes[-1], kind, what))
        return self.reached[-1]

    def install(self) -> Callable[[], None]:
        """Returns what undoes it."""
        mine = [
            (files, "os", _Os(self)),
            (Path, "replace", self._replace(Path.replace)),
            (Path, "unlink", self._unlink(Path.unlink)),
            *((pynvml, name, self._driver_call(name, getattr(pynvml, name))) for name in WRITING_CALLS),
        ]
        before = [(where, name, getattr(where, name)) for where, name, _ in mine]
        for where, name, hook in mine:
            setattr(where, name, hook)

        def undo() -> None:
            for where, name, own in before:
                setattr(where, name, own)

        return undo

    def synced(self, path: Path) -> None:
        """A file, before it gets its name, or a folder."""
        if path.is_dir():
            if self.disk.sync_folder(path):
                self.reach(Kind.FILE, f"{path.name}/ synced")
            return
        final = path.with_name(path.name.removeprefix(".").removesuffix(".tmp"))
        content = path.read_bytes()
        if final.exists() and final.read_bytes() == content:
            self.disk.sync_file(path)
            return
        if self.full():
            os.truncate(path, len(content) // 2)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.truncate(path, len(content) // 2)
        self.reach(Kind.FILE, f"{final.name} half written")
        path.write_bytes(content)
        self.disk.sync_file(path)
        self.reach(Kind.FILE, f"{final.name} written")

    def _mine(self, path: Path) -> bool:
        return self.counting and any(path.is_relative_to(root) for root in self.roots)

    def _replace(self, own: Callable[..., Path]) -> Callable[..., Path]:
        def replace(path: Path, target: Path) -> Path:
            if not self._mine(path):
                return own(path, target)
            self.disk.rename(path, target)
            changes = not target.exists() or target.read_bytes() != path.read_bytes()
            found = own(path, target)
            if changes:
                self.reach(Kind.FILE, f"{target.name} renamed")
            return found

        return replace

    def _unlink(self, own: Callable[..., None]) -> Callable[..., None]:
        def unlink(path: Path, missing_ok: bool = False) -> None:
            if not self._mine(path) or not path.exists():
                own(path, missing_ok)
                return
            self.disk.remove(path)
            own(path, missing_ok)
            self.reach(Kind.FILE, f"{path.name} removed")

        return unlink

    def _driver_call(self, name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def no_answer() -> Any:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)  # type: ignore[no-untyped-call]

        return lambda *arguments: self.call(Kind.DRIVER, name, lambda: own(*arguments), no_answer)


class Disk:
    """What a power cut leaves: a name has what its folder had when it was last synced, and of that what was synced."""

    def __init__(self) -> None:
        self._synced: dict[Path, bytes] = {}
        """Content of temporary files."""
        self._pending: dict[Path, tuple[bytes | None, bytes | None]] = {}
        """By name, what it had when its folder was last synced, and what it would have now."""

    def sync_file(self, path: Path) -> None:
        self._synced[path] = path.read_bytes()

    def rename(self, path: Path, target: Path) -> None:
        # What was not synced may be empty: the name is there before its content.
        self._put(target, self._synced.pop(path, b""))

    def remove(self, path: Path) -> None:
        self._put(path, None)

    def _put(self, path: Path, content: bytes | None) -> None:
        before = self._pending.get(path)
        old = before[0] if before else path.read_bytes() if path.exists() else None
        self._pending[path] = (old, content)

    def sync_folder(self, folder: Path) -> bool:
        """Whether there was anything to lose."""
        found = {path: contents for path, contents in self._pending.items() if path.parent == folder}
        for path in found:
            del self._pending[path]
        return any(old != new for old, new in found.values())

    def cut(self) -> None:
        """Everything that was not synced is lost."""
        for path, (content, _) in self._pending.items():
            if content is not None:
                path.write_bytes(content)
            else:
                path.unlink(missing_ok=True)
        self._pending.clear()


class _Os:
    """The module `os`, in which fsync is a place."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        if self._points.counting:
            self._points.synced(Path(f"/proc/self/fd/{descriptor}").readlink())

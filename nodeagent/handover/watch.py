"""Reports that something happened in a directory: inotify through watchdog, as a mere hint.

Takes a directory and a callback without arguments, and calls it whenever an entry may have changed. A missing
directory, an exhausted inotify limit or a directory that was created again costs speed, not correctness: callers also
read the files periodically, and call `ensure` when they do. Never reads a file itself.
"""

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from kube.change_log import ChangeLog

log = logging.getLogger(__name__)

OWN_READS = ("opened", "closed_no_write")  # reading the files must not wake the reader


class DirectoryWatch(FileSystemEventHandler):
    def __init__(self, directory: Path, on_event: Callable[[], None]) -> None:
        self._directory, self._on_event = directory, on_event
        self._observer: BaseObserver | None = None
        self._inode = 0
        self._change_log = ChangeLog(log)

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in OWN_READS:
            self._on_event()

    def ensure(self) -> None:
        """Start watching, unless already doing so: an emitter ends silently when its directory is removed."""
        try:
            inode = self._directory.stat().st_ino
        except OSError:
            inode = 0
        if self._observer is not None and inode == self._inode and all(e.is_alive() for e in self._observer.emitters):
            return
        self.stop()
        if not inode:
            return
        observer: BaseObserver | None = None
        try:
            observer = Observer()
            observer.schedule(self, str(self._directory))  # the directory: renames do not show on the file itself
            observer.start()
        except OSError as error:
            if observer is not None:
                observer.stop()  # it has an inotify instance of its own, and this is tried again in each pass
            self._change_log.warn(f"cannot watch {self._directory}, polling only: {error}")
            return
        self._change_log.warn("")
        self._observer, self._inode = observer, inode
        self._on_event()  # what happened in between

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(2.0)
            self._observer = None


class DirectoryWatches:
    """Watches the directories that were named last, one callback for all; those of pods come and go."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self._on_event = on_event
        self._watches: dict[Path, DirectoryWatch] = {}

    def follow(self, directories: Collection[Path]) -> None:
        """Watch these and no others. Call it often: it also starts a watch that could not be started, or has ended."""
        for directory in self._watches.keys() - set(directories):
            self._watches.pop(directory).stop()
        for directory in directories:
            self._watches.setdefault(directory, DirectoryWatch(directory, self._on_event)).ensure()

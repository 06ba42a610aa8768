"""Reports that something happened in directories: inotify through watchdog, as a mere hint.

Takes directories and a callback without arguments, and calls it whenever an entry may have changed. A missing
directory, an exhausted inotify limit or a directory that was created again costs speed, not correctness: callers also
read the files periodically, and call `follow` when they do. Never reads a file itself.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from kube.change_log import ChangeLog

log = logging.getLogger(__name__)

OWN_READS = ("opened", "closed_no_write")  # reading the files must not wake the reader


class DirectoryWatches(FileSystemEventHandler):
    """One callback for all directories; those of pods come and go."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self._on_event = on_event
        self._observers: dict[Path, tuple[int, BaseObserver]] = {}
        """With the inode of the directory."""
        self._change_log = ChangeLog(log)

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in OWN_READS:
            self._on_event()

    def follow(self, *directories: Path) -> None:
        """Watch these and no others. Call it often: it also starts a watch that could not be started, or has ended."""
        for directory in self._observers.keys() - set(directories):
            self._stop(directory)
        self._change_log.retain(directories)
        for directory in directories:
            self._ensure(directory)

    def _ensure(self, directory: Path) -> None:
        """Start watching, unless already doing so: an emitter ends silently when its directory is removed."""
        try:
            inode = directory.stat().st_ino
        except OSError:
            inode = 0
        if directory in self._observers:
            watched, running = self._observers[directory]
            if inode == watched and all(emitter.is_alive() for emitter in running.emitters):
                return
            self._stop(directory)
        if not inode:
            return
        observer: BaseObserver | None = None
        try:
            observer = Observer()
            observer.schedule(self, str(directory))  # the directory: renames do not show on the file itself
            observer.start()
        except OSError as error:
            if observer is not None:
                observer.stop()  # it has an inotify instance of its own, and this is tried again in each pass
            self._change_log.warn(f"cannot watch {directory}, polling only: {error}", directory)
            return
        self._change_log.warn("", directory)
        self._observers[directory] = inode, observer
        self._on_event()  # what happened in between

    def _stop(self, directory: Path) -> None:
        _, observer = self._observers.pop(directory)
        observer.stop()
        observer.join(2.0)

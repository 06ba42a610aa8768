"""Keeps the latest version of one object of the API: from the watch, or from the answer to our own write where newer.

Takes values with uid, generation and resourceVersion, returns the newest. The watch lags behind our writes, so an older
version that it delivers late is ignored; but the watch itself never goes back, and where it does, after a restore of
etcd, it is believed. Reads and writes nothing.
"""

import threading
from typing import Generic, Protocol, TypeVar


class Versioned(Protocol):
    @property
    def uid(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def version(self) -> str:
        """resourceVersion."""


V = TypeVar("V", bound=Versioned)


class LatestVersion(Generic[V]):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: V | None = None
        self._watched: V | None = None
        """What the watch brought last."""
        self._gone_uid = ""
        """Of the object that was deleted last."""

    def on_event(self, _key: object, _old: V | None, new: V | None) -> None:
        """One event of the watch."""
        with self._lock:
            before, self._watched = self._watched, new
            if new is None and self._latest is not None:
                self._gone_uid = self._latest.uid
            if new is None or not _late(new, self._latest) or (before is not None and _older(new, before)):
                self._latest = new

    def accept(self, written: V) -> None:
        """The answer to our own request: counts at once, the watch may deliver it later."""
        with self._lock:
            known = self._latest
            if known is None:
                fresh = written.uid != self._gone_uid  # else it comes after the deletion
            else:
                fresh = known.uid == written.uid and not _older(written, known)
            if fresh:
                self._latest = written

    def get(self) -> V | None:
        with self._lock:
            return self._latest

    @property
    def watched(self) -> bool:
        """The watch has brought what `get` returns, or later: who else watches the object may know it by now."""
        with self._lock:
            latest, watched = self._latest, self._watched
            return watched is not None and latest is not None and not _older(watched, latest)


def _late(new: V, known: V | None) -> bool:
    """The watch brings what was there before our write."""
    if known is None or new.uid != known.uid or new.generation > known.generation:
        return False
    return _older(new, known)


def _older(one: V, other: V) -> bool:
    """Versions that are not numbers cannot be compared; then the last one counts."""
    return one.version.isdigit() and other.version.isdigit() and int(one.version) < int(other.version)

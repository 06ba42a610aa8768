"""Keeps a projected copy of one collection: list, then watch, for as long as it runs.

Takes a path and a `project` function that turns a raw object into a small frozen value (or None: not of interest).
Calls `on_change(key, old, new)` for every value that differs, from one thread, in the server's order. Raw objects
are dropped at once. A relist reports only the difference, and an object that was deleted and created again in between
as a change: compare uids. Never gives up, and never calls back after `stop` has returned.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from kubernetes.client import ApiClient

from kube import errors
from kube.backoff import Backoff
from kube.transport import Query
from kube.watch import WatchStream, WatchTiming, list_pages

T = TypeVar("T")
Key = tuple[str, str]  # namespace ("" for cluster-scoped objects), name
log = logging.getLogger(__name__)


class Reflector(Generic[T]):
    def __init__(
        self,
        api: ApiClient,
        path: str,
        *,
        project: Callable[[dict[str, Any]], T | None],
        on_change: Callable[[Key, T | None, T | None], None],
        params: Query | None = None,
        on_gap: Callable[[float], None] = lambda _seconds: None,
        optional: bool = False,
        timing: WatchTiming | None = None,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_gap` is called with the seconds for which nothing was heard, once it can be heard again.

        `optional`: that the server does not serve the path is no error, only a copy that stays unlisted.
        """
        self.path = path
        self.served = True  # False while an optional path is none that the server knows
        self._optional = optional
        self.synced = threading.Event()  # the first whole list was handed to on_change
        self._last_error = ""
        self._api, self._query = api, dict(params or {})
        self._project, self._on_change, self._on_gap = project, on_change, on_gap
        self._timing = timing or WatchTiming()
        self._backoff = Backoff(
            first_seconds=self._timing.first_backoff_seconds,
            cap_seconds=self._timing.cap_backoff_seconds,
            jitter=jitter,
        )
        self._items: dict[Key, T] = {}
        self._clock = clock
        self._current_at = clock()  # until then a list or a watch kept the copy up to date
        self._gap_ended_at = clock()
        self._opened_at: float | None = None  # when the watch that is open was opened
        self._lock = threading.Lock()  # guards _items and _stream
        self._version: str | None = None  # go on from here; None: list first
        self._stream: WatchStream | None = None
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"reflector {path}")

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_seconds: float = 2.0) -> None:
        """End the watch; a list in progress runs into its time-out, and its result is ignored."""
        self._quit.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def items(self) -> Mapping[Key, T]:
        """A copy, sorted by key."""
        with self._lock:
            return dict(sorted(self._items.items()))

    @property
    def last_error(self) -> str:
        """For health pages; empty while things work, as they do while a watch is open."""
        return self._last_error if self.stale_seconds() else ""

    def stale_seconds(self) -> float:
        """How long neither a list nor an open watch has kept the copy up to date; 0 while one does."""
        now, opened_at = self._clock(), self._opened_at
        if opened_at is not None and now - opened_at >= self._timing.short_watch_seconds:
            return 0.0
        return now - self._current_at

    def _run(self) -> None:
        while not self._quit.is_set():
            try:
                if self._version is None:
                    self._version = self._list()
                self._watch(self._version)
            except errors.Gone as error:
                self._version = None
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - any error is better than a watch that ended permanently
                self._failed(error)

    def _list(self) -> str:
        listed: set[Key] = set()
        version = ""
        for page in list_pages(self._api, self.path, self._query):
            if page.restarted:
                listed.clear()
            version = page.resource_version
            for item in page.items:
                listed.add(self._take(item, deleted=False))
        for key in sorted(set(self._items) - listed):
            self._put(key, None)
        if not self._quit.is_set():
            self._note_gap()
            self._worked()
            self._current_at = self._clock()
            self.synced.set()
        return version

    def _watch(self, version: str) -> None:
        started = self._clock()
        heard = False
        stream = WatchStream(self._api, self.path, self._query, version=version, timing=self._timing)
        with self._lock:
            self._stream = stream
        self._opened_at = self._clock()
        if self._quit.is_set():
            stream.close()
        try:
            self._note_gap()
            for event in stream:
                heard = True
                if event.type != "BOOKMARK":
                    self._take(event.object, deleted=event.type == "DELETED")
                self._version = event.object["metadata"]["resourceVersion"]
        finally:
            with self._lock:
                self._stream = None
            if self.stale_seconds() == 0:
                self._current_at = self._clock()
            self._opened_at = None
        lasted_seconds = self._clock() - started
        if lasted_seconds < self._timing.short_watch_seconds:
            self._failed(errors.Unavailable(f"the watch ended after {lasted_seconds:.1f} s"))
            return
        self._worked()
        if not heard and lasted_seconds >= 0.9 * self._timing.watch_seconds:
            # Not even a bookmark in the whole time: perhaps our version lies in the server's future (its storage was
            # restored), and then it would stay silent for ever.
            self._version = None

    def _note_gap(self) -> None:
        now, since = self._clock(), max(self._current_at, self._gap_ended_at)
        self._gap_ended_at = now
        if not self._quit.is_set():
            self._on_gap(now - since)

    def _take(self, item: dict[str, Any], *, deleted: bool) -> Key:
        metadata = item["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        try:
            new = None if deleted else self._project(item)
        except Exception:
            log.exception("%s: cannot read %s, keeping what was known of it", self.path, "/".join(filter(None, key)))
            return key
        self._put(key, new)
        return key

    def _put(self, key: Key, new: T | None) -> None:
        with self._lock:
            old = self._items.get(key)
            if old == new:
                return
            if new is None:
                del self._items[key]
            else:
                self._items[key] = new
            if self._quit.is_set():
                return
        try:
            self._on_change(key, old, new)
        except Exception:
            log.exception("%s: the handler of a change failed", self.path)

    def _failed(self, error: Exception) -> None:
        if self._quit.is_set():
            return
        text = str(error) or type(error).__name__
        expected = isinstance(error, errors.Gone) or text == self._last_error
        self.served = not (self._optional and isinstance(error, errors.NotFound))
        level = logging.DEBUG if expected else logging.WARNING if self.served else logging.INFO
        log.log(level, "%s: %s", self.path, text)
        self._last_error = text
        asked_seconds = errors.retry_after(error) if isinstance(error, errors.ApiError) else 0.0
        self._quit.wait(max(self._backoff.next_seconds(), asked_seconds))

    def _worked(self) -> None:
        if self._last_error:
            log.info("%s: works again", self.path)
        self.served = True
        self._last_error = ""
        self._backoff.reset()

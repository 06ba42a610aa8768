"""The batch window: many triggers close together become one pass.

Takes keys (whatever they stand for) and returns them as one batch when no further extending key arrived for the idle
time, or when the first key has waited for the timeout. A key that is in the batch already does not extend the window,
so something that flaps cannot hold it open. An extending key that comes alone after a quiet time may be tried early:
what comes of it is kept, or the batch is put back and its window goes on; that is offered once per batch. Knows no
pods, starts no threads, reads only the clock that it is given.
"""

import math
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

QUIET_SECONDS = 5.0
"""Without a batch that had an extending key: what comes then is no part of a burst that goes on."""
ALONE_SECONDS = 0.25
"""Without a second extending key: it is not the first of a burst. A scheduler that has refused a pod tries it again
after a second at the earliest, so that the pod loses nothing by it."""


class Batcher(Generic[Key]):
    """Collects keys from any thread; one thread polls `due_in` and takes the batch."""

    def __init__(self, *, idle_seconds: float, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self._idle_seconds = idle_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[Key, None] = {}
        self._first = 0.0
        self._last = 0.0
        self._extended = False
        """The batch has an extending key."""
        self._early_at: float | None = None
        """When it may be tried; None: it may not, or not any more."""
        self._before, self._taken_at = (0.0, 0.0), -math.inf
        """When the batch that was taken last began and was extended; when one with an extending key was taken."""

    def add(self, key: Key, *, extend: bool = False) -> None:
        """Open the window; `extend` keeps an open one open for another idle time. A known key changes nothing."""
        with self._lock:
            if key in self._keys:
                return
            now = self._clock()
            if not self._keys:
                self._first = self._last = now
                self._extended, self._early_at = False, None
            elif extend:
                self._last = now
            if extend:
                alone = not self._extended and now - self._taken_at >= QUIET_SECONDS
                self._extended, self._early_at = True, now + ALONE_SECONDS if alone else None
            self._keys[key] = None

    def discard(self, key: Key) -> None:
        """Forget a key that needs nothing any more; the window closes when none is left."""
        with self._lock:
            self._keys.pop(key, None)

    @property
    def open(self) -> bool:
        """True while a batch is being collected, and until it is taken."""
        with self._lock:
            return bool(self._keys)

    def due_in(self) -> float | None:
        """Seconds until the window closes, 0 when it is over; None while it is not open."""
        with self._lock:
            if not self._keys:
                return None
            end = min(self._first + self._timeout_seconds, self._last + self._idle_seconds)
            return max(0.0, end - self._clock())

    @property
    def early(self) -> bool:
        """The batch may be tried now, before its window is over."""
        with self._lock:
            return bool(self._keys) and self._early_at is not None and self._clock() >= self._early_at

    def next_in(self) -> float | None:
        """Seconds until the batch is due, or may be tried; None while the window is not open."""
        due_in = self.due_in()
        with self._lock:
            if due_in is None or self._early_at is None:
                return due_in
            return min(due_in, max(0.0, self._early_at - self._clock()))

    def take(self) -> tuple[Key, ...]:
        """The batch, in order of arrival; the next key opens a new window."""
        with self._lock:
            batch = tuple(self._keys)
            self._keys.clear()
            self._before = (self._first, self._last)
            if self._extended:
                self._taken_at = self._clock()
            return batch

    def put_back(self, batch: Iterable[Key]) -> None:
        """What was taken last was tried in vain: its window goes on, together with what came meanwhile."""
        with self._lock:
            self._first, last = self._before
            self._last = self._last if self._keys else last
            self._keys = dict.fromkeys((*batch, *self._keys))
            self._extended, self._early_at = True, None

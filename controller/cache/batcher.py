"""The batch window: many triggers close together become one pass.

Takes keys (whatever they stand for) and returns them as one batch when no further extending key arrived for the idle
time, or when the first key has waited for the timeout. A key that is in the batch already does not extend the window,
so something that flaps cannot hold it open. Knows no pods, starts no threads, reads only the clock that it is given.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


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

    def add(self, key: Key, *, extend: bool = False) -> None:
        """Open the window; `extend` keeps an open one open for another idle time. A known key changes nothing."""
        with self._lock:
            if key in self._keys:
                return
            now = self._clock()
            if not self._keys:
                self._first = self._last = now
            elif extend:
                self._last = now
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

    def take(self) -> tuple[Key, ...]:
        """The batch, in order of arrival; the next key opens a new window."""
        with self._lock:
            batch = tuple(self._keys)
            self._keys.clear()
            return batch

"""Decides when a request that failed may be sent again, and whether its failure is worth reporting.

Keeps one back-off per key (an object, or one kind of write to it). `failed` starts a pause: the key's own, which
doubles from failure to failure, or the server's Retry-After where that is longer. `succeeded` resets it. A permanent
refusal is to be reported once per text, a stale version never: something else wrote in between, and its watch event
follows. Never sends, sleeps, logs or counts; may be called from several threads.
"""

import math
import random
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kube import errors
from kube.backoff import Backoff

Key = TypeVar("Key", bound=Hashable)

FIRST_SECONDS = 1.0
CAP_SECONDS = 60.0


@dataclass(slots=True)
class _Entry:
    backoff: Backoff
    retry_at: float
    reported: str = ""


class RetryGate(Generic[Key]):
    """One per kind of writer. Keys that are neither paused nor tried for a while are forgotten."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        first_seconds: float = FIRST_SECONDS,
        cap_seconds: float = CAP_SECONDS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._first_seconds = first_seconds
        self._cap_seconds = cap_seconds
        self._jitter = jitter
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}
        self._sweep_at = clock() + 2 * cap_seconds

    def may_send(self, key: Key) -> bool:
        """No pause is running for this key."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is None or self._clock() >= entry.retry_at

    def retry_at(self, key: Key) -> float:
        """When the pause of this key ends, or ended; -inf where none is known."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.retry_at if entry is not None else -math.inf

    def reported(self, key: Key) -> str:
        """The last failure of this key that was reported; empty where none is known."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.reported if entry is not None else ""

    def succeeded(self, key: Key, *, pause_seconds: float = 0.0) -> None:
        """Reset the back-off; `pause_seconds` is how long the same request would be useless even so."""
        with self._lock:
            self._entries.pop(key, None)
            if pause_seconds > 0:
                now = self._clock()
                self._sweep(now)
                self._entries[key] = _Entry(self._new_backoff(), now + pause_seconds)

    def failed(self, key: Key, error: errors.ApiError) -> bool:
        """Start the next pause; True: log this failure and count it."""
        with self._lock:
            now = self._clock()
            self._sweep(now)
            entry = self._entries.setdefault(key, _Entry(self._new_backoff(), now))
            entry.retry_at = now + max(entry.backoff.next_seconds(), errors.retry_after(error))
            if errors.is_stale(error):
                return False
            repeated = entry.reported == error.message and not isinstance(error, errors.Unavailable)
            entry.reported = error.message
            return not repeated

    def _new_backoff(self) -> Backoff:
        return Backoff(first_seconds=self._first_seconds, cap_seconds=self._cap_seconds, jitter=self._jitter)

    def _sweep(self, now: float) -> None:
        """Objects come and go under new names: without this their entries would stay."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + 2 * self._cap_seconds
        oldest = now - 2 * self._cap_seconds
        self._entries = {key: entry for key, entry in self._entries.items() if entry.retry_at > oldest}

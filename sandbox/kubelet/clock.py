"""Time for the kubelet stand-in: two readings, and a list of what is due when.

In: nothing. Out: `Clock` (wall time for what people read, monotonic time for every duration) and `Agenda`, a heap of
items by due time that its owner empties. Neither starts a thread nor sleeps; a test hands in its own readings.
"""

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


def timestamp(epoch_seconds: float) -> str:
    """RFC 3339 with whole seconds, the only form that Kubernetes objects carry."""
    return datetime.fromtimestamp(int(epoch_seconds), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch_seconds(text: str) -> float | None:
    """The time in an object's timestamp; None for an absent or unreadable one."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


class Agenda(Generic[T]):
    """Items with a due time; equal times come out in the order they went in."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()

    def add(self, due: float, item: T) -> None:
        heapq.heappush(self._heap, (due, next(self._order), item))

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[T]:
        ready = []
        while self._heap and self._heap[0][0] <= now:
            ready.append(heapq.heappop(self._heap)[2])
        return ready

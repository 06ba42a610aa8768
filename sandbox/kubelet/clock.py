"""Keeps time for the stand-in, and runs its one sync loop.

`Clock` reads wall time, which people see, and monotonic time, which measures durations; `Agenda` is a heap of items by
due time; `SyncLoop` is one thread that runs calls in order, now or when they are due. Admission runs in it, so while a
plugin answers an Allocate nothing else happens: the real kubelet does the same. A call that fails is logged and does
not end the loop. Tests pass their own readings of the clock.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from kube.timestamps import api_time

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


def timestamp(epoch_seconds: float) -> str:
    """RFC 3339 with whole seconds, the only form that Kubernetes objects carry."""
    return api_time(datetime.fromtimestamp(int(epoch_seconds), tz=UTC))


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


log = logging.getLogger(__name__)
Call = Callable[[], object]


class SyncLoop:
    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._calls: deque[Call] = deque()
        self._agenda: Agenda[Call] = Agenda()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, call: Call) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify()

    def after(self, seconds: float, call: Call) -> None:
        with self._changed:
            self._agenda.add(self._clock.monotonic() + seconds, call)
            self._changed.notify()

    def stop(self, *, join_seconds: float = 5.0) -> None:
        """What is queued is dropped; the call under way is waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(join_seconds)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception:
                log.exception("%s: a step failed", self._thread.name)

    def _next(self) -> Call | None:
        with self._changed:
            while not self._stopped:
                now = self._clock.monotonic()
                self._calls.extend(self._agenda.pop_due(now))
                if self._calls:
                    return self._calls.popleft()
                due = self._agenda.next_due()
                self._changed.wait(None if due is None else due - now)
            return None

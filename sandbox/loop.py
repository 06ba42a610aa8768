"""Runs calls one after the other on a thread of its own, each when it is due.

Calls that are due at the same time run in the order they came. A call that fails is logged and does not end the loop.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
Call = Callable[[], object]


class Loop:
    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, call: Call) -> None:
        self.after(0.0, call)

    def after(self, seconds: float, call: Call) -> None:
        with self._changed:
            heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._order), call))
            self._changed.notify()

    def stop(self, *, drain_seconds: float = 0.0, join_seconds: float = 5.0) -> None:
        """The call under way is waited for, what is due still made within `drain_seconds`; the rest is dropped."""
        running = self._thread.is_alive() and self._thread is not threading.current_thread()
        if drain_seconds and running:
            drained = threading.Event()
            self.post(drained.set)
            drained.wait(drain_seconds)
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if running:
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
                left = self._calls[0][0] - time.monotonic() if self._calls else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(left)
            return None

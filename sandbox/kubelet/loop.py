"""The sync loop of a kubelet: one thread that does one thing after the other.

In: calls from other threads, calls that are due later. Out: they run here, in order. Admission runs in it, so while a
plugin thinks over an Allocate nothing else happens: that is the real kubelet's behaviour and is kept on purpose. A
call that fails is logged and does not end the loop.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

from sandbox.kubelet.clock import Agenda, Clock

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

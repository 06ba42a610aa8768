"""Bounds the time of the API requests of one pass, so that an API server that never answers cannot stop a loop.

Gives every request the time that is left as its timeouts. A request without an answer uses that time up, an answered
one costs nothing. Once the time is used up, the further requests of the pass fail fast; the next pass starts with the
full time. Sends nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kube.errors import ApiError
from kube.transport import Timeouts

PASS_SECONDS = 12.0
SHORTEST_SECONDS = 0.5
"""For a request when the time is used up: an API server that has come back answers within it."""


class RequestBudget:
    """`renew` at the start of a pass, `request` around each request in it. Of one thread."""

    def __init__(
        self,
        *,
        seconds: float = PASS_SECONDS,
        shortest_seconds: float = SHORTEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds, self._shortest_seconds, self._clock = seconds, shortest_seconds, clock
        self._used_seconds = 0.0

    def renew(self) -> None:
        self._used_seconds = 0.0

    @contextmanager
    def request(self) -> Iterator[Timeouts]:
        """The time-outs of one request; together they are no longer than what is left."""
        left = max(self._seconds - self._used_seconds, self._shortest_seconds)
        started = self._clock()
        try:
            yield Timeouts(connect_seconds=left / 4, read_seconds=left * 3 / 4)
        except ApiError as error:
            if not error.status:
                self._used_seconds += self._clock() - started
            raise

"""Waits until a condition holds, for what runs in other threads, processes and servers.

Polls with a deadline. A failure names what was awaited and what was seen last. Never used to let time pass: what takes
a clock gets `tests.clock.Clock`.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 120.0  # much longer than any of it takes: only a failure waits so long
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.05


def eventually(
    observe: Callable[[], T | None], what: str, seconds: float = SECONDS, *, seen: Callable[[], object] | None = None
) -> T:
    """The first truthy observation.

    `seen` is what to show of the world when there was none; without it, the last observation is shown.
    """
    began = time.monotonic()
    pause = threading.Event()
    while True:
        before = time.monotonic()
        found = observe()
        if found:
            return found
        took, waited = time.monotonic() - before, time.monotonic() - began
        if waited > seconds:
            last = found if seen is None else seen()
            raise AssertionError(f"timed out after {seconds:g} s waiting for: {what}; last seen: {last!r}")
        # At most a third of the time goes into observing: what is awaited needs the processor, too.
        pause.wait(max(min(max(waited / 20, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS), 2 * took))

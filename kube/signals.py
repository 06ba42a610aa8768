"""Ends a process by SIGTERM or SIGINT, whatever its main thread does at that moment.

Takes a function and calls it, on a thread of its own, for each such signal. A handler runs in the main thread between
any two steps, even while that thread holds the lock of the very Event that the function sets, and would wait for it
permanently. Never calls the function in the handler.
"""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def call_when_ended(stop: Callable[[], None]) -> None:
    """Call it in the main thread, which Python gives all signals."""
    received: SimpleQueue[int] = SimpleQueue()  # its put may interrupt itself

    def wait() -> None:
        while True:
            received.get()
            stop()

    threading.Thread(target=wait, daemon=True, name="signals").start()
    for number in SIGNALS:
        signal.signal(number, lambda number, _: received.put(number))

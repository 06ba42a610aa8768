"""Sends several requests at once: one after the other, those of a thousand nodes would block the loop for minutes.

Takes items and an action, returns the results in the order of the items. What an action raises is raised here once all
have ended; actions that must not stop each other catch their own errors. Does not bound the time of a pass: the caller
decides how long it sends, and sends the rest in the next pass.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

REQUESTS = 8
"""In flight at once: the API server is the slow part."""
SENDING_SECONDS = 3.0
"""How long one kind of work may go on sending within a turn."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def at_once(act: Callable[[Item], Answer], items: Iterable[Item]) -> tuple[Answer, ...]:
    """Do it with every item; a single one needs no thread."""
    work = list(items)
    if len(work) < 2:
        return tuple(act(item) for item in work)
    with ThreadPoolExecutor(max_workers=min(REQUESTS, len(work)), thread_name_prefix="request") as pool:
        futures = [pool.submit(act, item) for item in work]
    return tuple(future.result() for future in futures)

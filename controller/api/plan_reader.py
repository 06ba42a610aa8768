"""Parses each version of a plan once, however many ways it arrives.

Our own write is answered with the object that the watch brings as well, at the same moment or a little later. Readings
are shared as long as something holds them; the cache never keeps an object alive beyond the most recent few.
"""

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from controller.api.plans import PlanReading, read_plan
from controller.api.reading import Unreadable

RECENT = 64


class PlanReader:
    """Reads each version of a plan once, as long as its reading is in use; callable from any thread.

    What our own write was answered with comes by the watch as well, at the same moment or a little later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[PlanReading] = deque(maxlen=RECENT)
        """Kept although another version may have taken their place before the watch brought them."""
        self._known: WeakValueDictionary[tuple[str, str], PlanReading] = WeakValueDictionary()

    def __call__(self, raw: Mapping[str, Any]) -> PlanReading | Unreadable:
        """The reading of a plan."""
        metadata = raw.get("metadata") or {}
        version = (str(metadata.get("uid")), str(metadata.get("resourceVersion")))
        with self._lock:
            known = self._known.get(version)
            if known is not None:
                return known
            read = read_plan(raw)
            if isinstance(read, PlanReading):
                self._known[version] = read
                self._recent.append(read)
            return read

"""How long something has been so, without a break, on the monotonic clock.

In go keys, out come seconds since a key was first asked for. A key that was not asked for during a whole pass starts
anew, so deadlines need no cleaning up, and all of them start anew with the process. Keeps nothing on disk.
"""

from __future__ import annotations

from collections.abc import Callable


class Ages:
    """Ask during a pass, then call `end_pass`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[tuple[str, ...], float] = {}
        self._used: set[tuple[str, ...]] = set()

    def seconds(self, *key: str) -> float:
        """Since this key was first asked for."""
        self._used.add(key)
        now = self._clock()
        return now - self._since.setdefault(key, now)

    def end_pass(self) -> None:
        """Forget what was not asked for since the last call."""
        self._since = {key: since for key, since in self._since.items() if key in self._used}
        self._used.clear()

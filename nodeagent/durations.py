"""Measures for how long something has been so, without a break, on the monotonic clock.

Takes keys and returns the seconds since a key was first used. A key that is not used during a whole pass starts again
at zero, so deadlines need no cleaning up; all of them start again with the process. Keeps nothing on disk.
"""

from collections.abc import Callable


class Durations:
    """Call `seconds` during a pass, then `end_pass`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[tuple[str, ...], float] = {}
        self._used: set[tuple[str, ...]] = set()

    def seconds(self, *key: str) -> float:
        """Since this key was first used."""
        self._used.add(key)
        now = self._clock()
        return now - self._since.setdefault(key, now)

    def end_pass(self) -> None:
        """Forget the keys that were not used since the last call."""
        self._since = {key: since for key, since in self._since.items() if key in self._used}
        self._used.clear()

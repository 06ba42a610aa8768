"""A delaying queue: which names to judge in this turn, those that changed and those whose time has come.

Takes names from the state as things are observed (`touch`, any thread) and deadlines from the one who judges (`at`);
`take` returns what is due. Once in a while every known name is due, in case a change was not reported. Judges
nothing itself, so that a turn in which nothing happened costs nothing, however many nodes there are.
"""

import heapq
import threading
from collections.abc import Callable, Iterable

RESYNC_SECONDS = 60.0


class DelayingQueue:
    """One per judge; a follower's grows to the names of the cluster at most."""

    def __init__(
        self, *, clock: Callable[[], float], every: Callable[[], Iterable[str]], resync_seconds: float = RESYNC_SECONDS
    ) -> None:
        """`every` names all that there is to judge."""
        self._clock = clock
        self._every = every
        self._resync_seconds = resync_seconds
        self._resync_at = clock()
        self._lock = threading.Lock()
        self._touched: set[str] = set()
        self._deadlines: list[tuple[float, str]] = []
        self._earliest: dict[str, float] = {}
        """Per name the deadline that counts; others in the heap are out of date."""

    def touch(self, name: str) -> None:
        """Something that the judgement of this name rests on has changed."""
        with self._lock:
            self._touched.add(name)

    def at(self, name: str, moment: float) -> None:
        """Judge it again then, or before if it is touched."""
        with self._lock:
            if moment < self._earliest.get(name, float("inf")):
                self._earliest[name] = moment
                heapq.heappush(self._deadlines, (moment, name))

    def take(self) -> list[str]:
        """The names that are due, sorted; they are off the agenda until they are touched or put there again."""
        now = self._clock()
        resync = now >= self._resync_at
        if resync:
            self._resync_at = now + self._resync_seconds
        every = self._every() if resync else ()
        with self._lock:
            due, self._touched = self._touched, set()
            due.update(every)
            while self._deadlines and self._deadlines[0][0] <= now:
                moment, name = heapq.heappop(self._deadlines)
                if self._earliest.get(name) == moment:
                    due.add(name)
            for name in due:
                self._earliest.pop(name, None)
        return sorted(due)

"""Work that is due at times, for many simulated nodes on few threads.

Runs jobs on worker threads when they are due: never two of one job at once, a job that is
woken while it runs runs once more, and at least `pause_seconds` lie between two runs of one. A job returns when it
is due again. A job that raises is counted, and due again after a while.
"""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)
FAILED_SECONDS = 5.0
FOREVER = float("inf")


class Job:
    """Owned by the timetable but for `run`, whose answer is the seconds until it is due again; None: only if woken."""

    __slots__ = ("due", "not_before", "pause_seconds", "run", "running")

    def __init__(self, run: Callable[[], float | None], *, pause_seconds: float = 0.0) -> None:
        self.run = run
        self.pause_seconds = pause_seconds
        self.due = FOREVER
        self.not_before = 0.0
        self.running = False


class Timetable:
    def __init__(self, clock: Callable[[], float], *, workers: int) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self._stopping = False
        self.failures = 0
        self._threads = [
            threading.Thread(target=self._work, daemon=True, name=f"worker-{number}") for number in range(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more; runs in hand get a moment to end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(5.0)

    def wake(self, job: Job, seconds: float = 0.0) -> None:
        """Run it after this time, or earlier if it is due earlier."""
        with self._changed:
            self._push(job, self._clock() + seconds)

    def once(self, act: Callable[[], None], seconds: float = 0.0) -> None:
        """Run something one time."""
        self.wake(Job(act), seconds)

    def _push(self, job: Job, at: float) -> None:
        at = max(at, job.not_before)
        if at >= job.due:
            return
        job.due = at
        if not job.running:  # else it is queued when it has ended
            heapq.heappush(self._heap, (at, next(self._numbers), job))
            self._changed.notify()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                seconds = job.run()
            except Exception:
                log.exception("a job failed")
                self.failures += 1
                seconds = FAILED_SECONDS
            self._ended(job, seconds)

    def _next(self) -> Job | None:
        with self._changed:
            while not self._stopping:
                wait_seconds = self._heap[0][0] - self._clock() if self._heap else None
                if wait_seconds is not None and wait_seconds <= 0:
                    at, _, job = heapq.heappop(self._heap)
                    if job.running or at != job.due:
                        continue  # it became due earlier, and that run is over or under way
                    job.running, job.due = True, FOREVER
                    return job
                self._changed.wait(wait_seconds)
            return None

    def _ended(self, job: Job, seconds: float | None) -> None:
        with self._changed:
            now = self._clock()
            job.running, job.not_before = False, now + job.pause_seconds
            due = min(job.due, FOREVER if seconds is None else now + seconds)
            job.due = FOREVER
            if due < FOREVER:
                self._push(job, due)

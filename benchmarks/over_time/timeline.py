"""Virtual time: what happens when, how long hardware takes, and what is recorded of the jobs."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.over_time.jobs import Job, Size

_GOLDEN = 0.381966
"""Spreads the ticks of the nodes evenly, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """In seconds."""

    create: float = 0.6
    """Per instance."""
    delete: float = 0.4
    tick: float = 10.0
    """Between two statuses of a kubelet."""
    write_allocatable: bool = False
    """The agent writes the Node's counts itself, so that no tick is waited for."""
    agent: float = 0.1
    """From a written plan to the first cut."""
    written: float = 0.15
    """From an instance to the count that the agent writes."""

    def cut(self, created: int, deleted: int) -> float:
        return created * self.create + deleted * self.delete


class Timeline:
    """The events to come; what is due at one moment happens in the order in which it was added."""

    def __init__(self, delays: Delays) -> None:
        self.delays = delays
        self.now = 0.0
        self._number = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    @property
    def waits(self) -> bool:
        """Something is to happen."""
        return bool(self._events)

    @property
    def next_at(self) -> float:
        return self._events[0][0] if self._events else math.inf

    def advance(self) -> None:
        """Go to the next event, and do everything that is due then."""
        self.now = self.next_at
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()

    def next_tick(self, number: int, now: float) -> float:
        """When this node shows what is there now."""
        if self.delays.write_allocatable or self.delays.tick == 0:
            return now + self.delays.written
        phase = self.delays.tick * (number * _GOLDEN % 1)
        return phase + self.delays.tick * math.ceil((now - phase) / self.delays.tick)


class Record:
    """What became of the jobs, and what the hardware and the planner went through."""

    def __init__(self, jobs: list[Job], size: Size) -> None:
        self.jobs, self.size = jobs, size
        self.started: dict[int, float] = {}
        self.last_end = 0.0
        self.ended_at = 0.0
        """When the replay ended."""
        self.created = self.deleted = self.gpus_changed = self.passes = 0
        self.plan_seconds = 0.0
        self.measures = False
        """Whether `plan_seconds` is filled."""

    def starts(self, job: int, now: float) -> None:
        self.started[job] = now

    def ends(self, now: float) -> None:
        self.last_end = max(self.last_end, now)

    def changed(self, *, created: int, deleted: int) -> None:
        """One GPU was changed."""
        self.created += created
        self.deleted += deleted
        self.gpus_changed += bool(created or deleted)

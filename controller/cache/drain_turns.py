"""Remembers how long GPUs have been drained for pods, and whose turn is over.

Takes what each pass drains, and returns the pods for which nothing may be drained for now. A drain is given up where
all that it waits for is free and the pod has no place yet, or where no holder has left for long: then the next pod has
its turn, and this one comes back after a pause that doubles. A GPU that has lost a holder is near its end: it is kept
for as long as that one was there, since the others may run as long. Reads no clock; must never be the reason why a pod
is not placed.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from controller.model.results import Drained

FREE_SECONDS = 600.0
"""How long a GPU without holders is kept for a pod that has no place there."""
UNCHANGED_SECONDS = 1800.0
"""How long a GPU is kept of which no holder leaves."""
BEGUN_SECONDS = 86_400.0
"""At most, once a holder has left it that was there longer."""
FIRST_PAUSE_SECONDS = 600.0
LONGEST_PAUSE_SECONDS = 3600.0


@dataclass(slots=True, kw_only=True)
class _Turn:
    """Times are monotonic."""

    drained: Drained
    moved_at: float
    """When it began, or a holder left last."""
    patience: float = UNCHANGED_SECONDS
    free_at: float | None = None

    def note(self, drained: Drained, now: float, wall: float) -> None:
        before = self.drained
        left = [at for title, at in zip(before.holders, before.created, strict=True) if title not in drained.holders]
        if drained.partitions != before.partitions:
            # Another GPU is no progress, but what there was before is not held against it.
            self.moved_at = now if self.patience > UNCHANGED_SECONDS else self.moved_at
            self.patience = UNCHANGED_SECONDS
        elif left:
            self.moved_at = now
            longest = max((wall - created_at for created_at in left if created_at), default=0.0)
            self.patience = min(max(self.patience, longest), BEGUN_SECONDS)
        self.drained = drained
        self.free_at = None if drained.holders else self.free_at if self.free_at is not None else now

    @property
    def ends_at(self) -> float:
        """If nothing changes."""
        free_until = math.inf if self.free_at is None else self.free_at + FREE_SECONDS
        return min(free_until, self.moved_at + self.patience)


class DrainTurns:
    """One per controller. Plans have the drains; a new leader gives each a whole turn again."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        """By pod uid."""
        self._pauses: dict[str, tuple[float, float]] = {}
        """By pod uid: how long its last pause is, and when it ends."""

    def note(self, drained: Iterable[Drained], pending: Collection[str], now: float, *, wall: float) -> bool:
        """Take the drains of the pass that has just ended; whether one is given up, which the next pass ends.

        `pending` are the uids of all pending pods, and `wall` the time in which pods say when they were created.
        """
        self._pauses = {uid: pause for uid, pause in self._pauses.items() if uid in pending}
        turns, given_up = {}, False
        for one in drained:
            turn = turns[one.uid] = self._turns.get(one.uid) or _Turn(drained=one, moved_at=now)
            turn.note(one, now, wall)
            if turn.ends_at <= now:
                last, _ = self._pauses.get(one.uid, (FIRST_PAUSE_SECONDS / 2, 0.0))
                pause = min(2 * last, LONGEST_PAUSE_SECONDS)
                self._pauses[one.uid] = (pause, now + pause)
                del turns[one.uid]
                given_up = True
        self._turns = turns
        return given_up

    def moments(self) -> Iterator[float]:
        """When turns are over if nothing changes, and pauses are."""
        yield from (turn.ends_at for turn in self._turns.values())
        yield from (until for _, until in self._pauses.values())

    def resting(self, now: float) -> frozenset[str]:
        """Uids of pods for which nothing is drained now."""
        return frozenset(uid for uid, (_, until) in self._pauses.items() if now < until)

"""Remembers how long a GPU has been reserved for an aged pod, and whose turn it is.

Takes the reservation of each pass, and returns the pods that may not have one for now. A reservation is given up where
all that it waits for is free and the pod has no place yet, or where no holder has left the GPU for long: then the next
aged pod has its turn, and this one comes back after a pause that doubles. A GPU that has lost a holder is near its end
and is kept much longer. Reads no clock; must never be the reason why a pod is not placed.
"""

from collections.abc import Collection
from dataclasses import dataclass

from controller.model.results import ReservedFor

FREE_SECONDS = 600.0
"""How long a GPU without holders is kept for a pod that has no place there."""
UNCHANGED_SECONDS = 1800.0
"""How long a GPU is kept of which no holder leaves."""
BEGUN_SECONDS = 86_400.0
"""The same, once a holder has left it: the pods that hold the rest may run for hours."""
FIRST_PAUSE_SECONDS = 600.0
LONGEST_PAUSE_SECONDS = 3600.0


@dataclass(slots=True, kw_only=True)
class _Turn:
    """Times are monotonic."""

    reserved: ReservedFor
    moved_at: float
    """When it began, or a holder left last."""
    begun: bool = False
    """A holder has left."""
    free_at: float | None = None

    def note(self, now_reserved: ReservedFor, now: float) -> None:
        same = (now_reserved.node, now_reserved.gpu) == (self.reserved.node, self.reserved.gpu)
        if same and set(self.reserved.holders) - set(now_reserved.holders):
            self.moved_at, self.begun = now, True
        elif not same:
            self.begun = False
        self.reserved = now_reserved
        self.free_at = None if now_reserved.holders else self.free_at if self.free_at is not None else now

    def is_over(self, now: float) -> bool:
        if self.free_at is not None and now - self.free_at >= FREE_SECONDS:
            return True
        return now - self.moved_at >= (BEGUN_SECONDS if self.begun else UNCHANGED_SECONDS)


class ReservationTurns:
    """One per controller; kept in memory, so that a new leader gives each pod a whole turn again."""

    def __init__(self) -> None:
        self._turn: _Turn | None = None
        self._pauses: dict[str, tuple[float, float]] = {}
        """By pod uid: how long its last pause is, and when it ends."""

    def note(self, reserved: ReservedFor | None, pending: Collection[str], now: float) -> None:
        """Take the reservation of the pass that has just ended; `pending` are the uids of all pending pods."""
        self._pauses = {uid: pause for uid, pause in self._pauses.items() if uid in pending}
        if reserved is None:
            self._turn = None
            return
        if self._turn is None or self._turn.reserved.uid != reserved.uid:
            self._turn = _Turn(reserved=reserved, moved_at=now)
        self._turn.note(reserved, now)
        if self._turn.is_over(now):
            last, _ = self._pauses.get(reserved.uid, (FIRST_PAUSE_SECONDS / 2, 0.0))
            pause = min(2 * last, LONGEST_PAUSE_SECONDS)
            self._pauses[reserved.uid] = (pause, now + pause)
            self._turn = None

    @property
    def begun(self) -> ReservedFor | None:
        """The reservation in force, if a holder has left its GPU since: it stays there."""
        return self._turn.reserved if self._turn is not None and self._turn.begun else None

    def resting(self, now: float) -> frozenset[str]:
        """Uids of pods for which no GPU is reserved now."""
        return frozenset(uid for uid, (_, until) in self._pauses.items() if now < until)

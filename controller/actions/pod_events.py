"""Events about waiting pods: what you read in `kubectl describe pod`.

Takes one statement per pod and channel after each pass, and emits it when its cause is new for the pod. A cause that
does not change is repeated every ten minutes, so that its Event outlives the API server's limit of an hour. A statement
about something that is likely to be over soon is emitted after it has been true for a while, and one that returns to a
cause reported before after 30 seconds. Events of one cause are one Event object whose message is replaced. Never
decides why a pod waits, and reports nothing about a pod that no longer waits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from controller.model.reasons import UnplacedReason
from controller.model.views import PodKey
from crds.v1alpha1.names import EventReason
from kube.events import EventType, ObjectReference

REPEAT_SECONDS = 600.0
SETTLE_SECONDS = 30.0
EmittedReason: TypeAlias = EventReason | UnplacedReason
"""No other reason can be written: docs/conditions.md explains each of these."""


class Recorder(Protocol):
    """The part of kube.events.EventRecorder that the controller uses."""

    def emit(
        self,
        about: ObjectReference,
        event_type: EventType,
        reason: EmittedReason,
        message: str,
        *,
        series: str | None = None,
    ) -> None:
        """Write an Event some time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is true of a waiting pod after a pass."""

    uid: str
    key: PodKey
    reason: EmittedReason
    message: str
    type: EventType = "Warning"
    settle_seconds: float = 0.0
    """So long it must have been true: it is likely to be over soon without further action."""
    cause: str = ""
    """What makes it new, beyond the reason."""
    channel: str = ""
    """Statements of different channels about one pod are true at the same time."""


@dataclass(slots=True, kw_only=True)
class _Reported:
    """What was reported of one pod in one channel."""

    statement: Statement
    since: float
    last: tuple[str, str] | None = None
    """Reason and cause of the last Event."""
    last_at: float = 0.0
    causes: set[tuple[str, str]] = field(default_factory=set)
    quiet: bool = False
    """Its partitions are ready: the scheduler reports next."""

    @property
    def cause(self) -> tuple[str, str]:
        return (self.statement.reason, self.statement.cause)

    def due_at(self) -> float:
        if self.quiet:
            return float("inf")
        if self.last == self.cause:
            return self.last_at + REPEAT_SECONDS
        return self.since + (SETTLE_SECONDS if self.cause in self.causes else self.statement.settle_seconds)


class PodEvents:
    """Remembers what was reported of each waiting pod."""

    def __init__(self, recorder: Recorder, *, clock: Callable[[], float], waits: Callable[[PodKey, str], bool]) -> None:
        """`waits`: whether the pod of this name and uid is pending still."""
        self._recorder, self._clock, self._waits = recorder, clock, waits
        self._reported: dict[tuple[str, str], _Reported] = {}
        self._due_at = float("inf")

    def report(self, statements: Iterable[Statement], *, ready: Iterable[str] = ()) -> None:
        """Take the statements of one pass. Pods without one are forgotten, except those of `ready` (uids)."""
        now, before = self._clock(), self._reported
        quiet = set(ready)
        self._reported = {at: entry for at, entry in before.items() if at[0] in quiet}
        for entry in self._reported.values():
            entry.quiet = True
        for statement in statements:
            at = (statement.uid, statement.channel)
            entry = before.get(at) or _Reported(statement=statement, since=now)
            old_cause, entry.statement, entry.quiet = entry.cause, statement, False
            if entry.cause != old_cause:
                entry.since = now
            self._reported[at] = entry
        self._emit_due(now)

    def follow(self) -> None:
        """Emit what became due since the last pass."""
        now = self._clock()
        if now >= self._due_at:
            gone = [at for at, entry in self._reported.items() if not self._waits(entry.statement.key, at[0])]
            for at in gone:
                del self._reported[at]
            self._emit_due(now)

    def _emit_due(self, now: float) -> None:
        for entry in self._reported.values():
            if entry.due_at() <= now:
                self._emit(entry, now)
        self._due_at = min((entry.due_at() for entry in self._reported.values()), default=float("inf"))

    def _emit(self, entry: _Reported, now: float) -> None:
        entry.last, entry.last_at = entry.cause, now
        entry.causes.add(entry.cause)
        one = entry.statement
        self._recorder.emit(about_pod(one.key, one.uid), one.type, one.reason, one.message, series=one.cause)


def about_pod(key: PodKey, uid: str) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", name=key[1], namespace=key[0], uid=uid)

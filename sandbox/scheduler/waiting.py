"""Pods that wait for a node: the order of attempts, back-off, and who is worth another attempt.

A pod is tried as soon as it is due and its turn comes: at once when it is new, or after its back-off when something
happened that could help it, and five minutes after a failure in case an event was misjudged. Order: priority, then
creation, then name. Reads no clock and does no I/O: monotonic seconds are passed in.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.scheduler.records import Failure, PodRecord

FLUSH_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long a failed pod is left alone: doubling with each attempt. kube-scheduler's own defaults."""

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def after(self, attempts: int) -> float:
        return min(self.initial_seconds * float(2 ** min(attempts - 1, 10)), self.max_seconds)


@dataclass(slots=True, kw_only=True)
class Item:
    """One waiting pod. `due` is None while it is tried or on its way to a node; `failure` is of its last attempt."""

    record: PodRecord
    due: float | None = 0.0
    attempts: int = 0
    backed_off_until: float = 0.0
    failure: Failure | None = None

    @property
    def order(self) -> tuple[int, int, str, str, str]:
        view = self.record.view
        return (-view.priority, view.created, view.namespace, view.name, view.uid)


class Waiting:
    def __init__(self, back_off: BackOff) -> None:
        self._back_off = back_off
        self.items: dict[str, Item] = {}

    def put(self, record: PodRecord) -> None:
        """A new pod, or a newer reading of a known one. One that changed in what matters is tried again at once."""
        item = self.items.setdefault(record.view.uid, Item(record=record))
        if item.due is not None and record.signature != item.record.signature:
            item.due = 0.0
        item.record = record

    def forget(self, uid: str) -> None:
        self.items.pop(uid, None)

    def pop(self, now: float) -> Item | None:
        """The next pod to try. It is taken until `fail` or `forget`."""
        due = (item for item in self.items.values() if item.due is not None and item.due <= now)
        item = min(due, key=lambda item: item.order, default=None)
        if item is not None:
            item.due = None
        return item

    def fail(self, item: Item, failure: Failure, now: float) -> None:
        """Set the pod aside; even if it is woken, its back-off comes first."""
        if self.items.get(item.record.view.uid) is item:
            item.attempts += 1
            item.backed_off_until = now + self._back_off.after(item.attempts)
            item.failure = failure
            item.due = now + FLUSH_SECONDS

    def retry(self, item: Item) -> None:
        """Wake one pod whose failure had nothing to do with the cluster."""
        if item.due is not None:
            item.due = min(item.due, item.backed_off_until)

    def wake(self, helps: Callable[[PodRecord, Failure], bool]) -> None:
        """Retry the pods that an event helps."""
        for item in self.items.values():
            aside = item.due is not None and item.due > item.backed_off_until
            if aside and item.failure is not None and helps(item.record, item.failure):
                self.retry(item)

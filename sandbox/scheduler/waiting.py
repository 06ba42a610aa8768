"""Pods that wait for a node: the order of attempts, back-off, and who is worth another attempt.

A pod is active (tried as soon as its turn comes), set aside after a failure until something happens that could help
it, or backing off if that happened too soon. Order: priority, then creation, then name. Pods with one signature are
judged together. Reads no clock and does no I/O: monotonic seconds are passed in.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sandbox.scheduler.records import Failure, PodRecord, Signature

FLUSH_SECONDS = 300.0

Order = tuple[int, int, str, str, str]


class State(Enum):
    ACTIVE = "tried when its turn comes"
    SET_ASIDE = "failed; waits for something that helps"
    BACKING_OFF = "something helped; waits until it may be tried again"
    TAKEN = "being tried, or on its way to a node"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long a failed pod is left alone: doubling with each attempt. kube-scheduler's own defaults."""

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def after(self, attempts: int) -> float:
        return min(self.initial_seconds * float(2 ** min(attempts - 1, 10)), self.max_seconds)


@dataclass(slots=True, kw_only=True)
class Item:
    """One waiting pod. `failure` is that of its last attempt."""

    record: PodRecord
    signature: Signature
    state: State = State.TAKEN
    attempts: int = 0
    failed_at: float = 0.0
    backed_off_until: float = 0.0
    failure: Failure | None = None

    @property
    def order(self) -> Order:
        view = self.record.view
        return (-view.priority, view.created, view.namespace, view.name, view.uid)


class Waiting:
    def __init__(self, back_off: BackOff) -> None:
        self._back_off = back_off
        self._items: dict[str, Item] = {}
        # Heaps; an entry counts only while its pod is known and in the state the heap is for.
        self._active: list[Order] = []
        self._backing_off: list[tuple[float, str]] = []
        self._set_aside: dict[Signature, dict[str, Item]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._items

    def __len__(self) -> int:
        return len(self._items)

    def put(self, record: PodRecord) -> None:
        """A new pod, or a newer reading of a known one. One that changed in what matters is tried again at once."""
        uid = record.view.uid
        item = self._items.get(uid)
        if item is None:
            item = self._items[uid] = Item(record=record, signature=record.signature)
            self._activate(item)
            return
        item.record = record
        if record.signature != item.signature:
            self._leave_set_aside(item)
            item.signature = record.signature
            if item.state is not State.TAKEN:
                self._activate(item)

    def forget(self, uid: str) -> None:
        item = self._items.pop(uid, None)
        if item is not None:
            self._leave_set_aside(item)

    def pop(self, now: float) -> Item | None:
        """The next pod to try. It is taken until `fail` or `forget`."""
        while self._backing_off and self._backing_off[0][0] <= now:
            _, uid = heapq.heappop(self._backing_off)
            item = self._items.get(uid)
            if item is not None and item.state is State.BACKING_OFF:
                self._activate(item)
        while self._active:
            order = heapq.heappop(self._active)
            item = self._items.get(order[-1])
            if item is not None and item.state is State.ACTIVE and item.order == order:
                item.state = State.TAKEN
                return item
        return None

    def fail(self, item: Item, failure: Failure, now: float) -> None:
        """Set the pod aside; even if it is woken, its back-off comes first."""
        uid = item.record.view.uid
        if self._items.get(uid) is not item:
            return
        item.attempts += 1
        item.failed_at = now
        item.backed_off_until = now + self._back_off.after(item.attempts)
        item.failure = failure
        item.state = State.SET_ASIDE
        self._set_aside.setdefault(item.signature, {})[uid] = item

    def retry(self, item: Item, now: float) -> None:
        """Wake one pod whose failure had nothing to do with the cluster."""
        if item.state is State.SET_ASIDE:
            self._resume(item, now)

    def wake(self, helps: Callable[[PodRecord, Failure], bool], now: float) -> None:
        """Retry the pods that an event helps: one check for each signature and failure, not for each pod."""
        for members in list(self._set_aside.values()):
            answers: dict[Failure, bool] = {}
            for item in list(members.values()):
                failure = item.failure
                assert failure is not None
                if failure not in answers:
                    answers[failure] = helps(item.record, failure)
                if answers[failure]:
                    self._resume(item, now)

    def flush(self, now: float) -> None:
        """Retry pods that were set aside for five minutes, in case an event was misjudged."""
        for members in list(self._set_aside.values()):
            for item in list(members.values()):
                if item.failed_at + FLUSH_SECONDS <= now:
                    self._resume(item, now)

    def next_time(self) -> float | None:
        """When something is to be done though nothing happens."""
        times = [item.failed_at + FLUSH_SECONDS for members in self._set_aside.values() for item in members.values()]
        if self._backing_off:
            times.append(self._backing_off[0][0])
        return min(times, default=None)

    def _resume(self, item: Item, now: float) -> None:
        self._leave_set_aside(item)
        if item.backed_off_until > now:
            item.state = State.BACKING_OFF
            heapq.heappush(self._backing_off, (item.backed_off_until, item.record.view.uid))
        else:
            self._activate(item)

    def _activate(self, item: Item) -> None:
        item.state = State.ACTIVE
        heapq.heappush(self._active, item.order)

    def _leave_set_aside(self, item: Item) -> None:
        members = self._set_aside.get(item.signature)
        if members is not None and members.pop(item.record.view.uid, None) is not None and not members:
            del self._set_aside[item.signature]

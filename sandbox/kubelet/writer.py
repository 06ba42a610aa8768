"""Writes to the API in a thread of its own: pod statuses, final deletions, node status and Lease at each tick.

Takes statuses and writes the newest one of each pod once, retried until it is done or pointless, then the deletion if
one is due. A tick writes at most one patch and comes again after the period times 1 to 1.04; a device list that changes
in between waits for it. It is not the sync loop, so a slow API delays no admission, and a slow Allocate delays no
status.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sandbox.kubelet.api import ClusterApi, Outcome
from sandbox.kubelet.clock import Clock
from sandbox.kubelet.devices import Counts, DeviceTable
from sandbox.kubelet.node_status import NodeReading, status_patch
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.registration import Endpoints

_JITTER = 0.04
_TICK_RETRY_SECONDS = 0.5


@dataclass(eq=False, kw_only=True)
class NodeTicks:
    api: ClusterApi
    table: DeviceTable
    endpoints: Endpoints
    expired: Callable[[], None]
    clock: Clock
    random: Random
    tick_seconds: float
    lease_seconds: float
    version: str
    boots: int
    new_node: bool
    node: NodeReading | None = None
    _removed: set[str] = field(default_factory=set)
    _lease_due: float = 0.0

    def tick(self) -> float:
        counts = self._counts()
        node = self.node
        if node is None:
            return _TICK_RETRY_SECONDS
        now = self.clock.monotonic()
        if now >= self._lease_due:
            self.api.renew_lease(node.name)
            self._lease_due = now + self.lease_seconds
        if self._write(node, counts) is Outcome.LATER:
            return _TICK_RETRY_SECONDS
        return self.tick_seconds * (1 + _JITTER * self.random.random())

    def _counts(self) -> Counts:
        counts = self.table.counts(self.clock.monotonic())
        if counts.removed:
            for resource in counts.removed:
                self.endpoints.pop(resource, None)
            self.expired()
        # Kept until a patch has carried them: the table names them only once.
        self._removed = (self._removed | set(counts.removed)) - counts.capacity.keys()
        return Counts(capacity=counts.capacity, allocatable=counts.allocatable, removed=tuple(sorted(self._removed)))

    def _write(self, node: NodeReading, counts: Counts) -> Outcome:
        now = self.clock.wall()
        patch = status_patch(node, counts, version=self.version, boots=self.boots, new_node=self.new_node, now=now)
        if patch is None:
            return Outcome.DONE
        outcome = self.api.patch_node_status(node.name, patch)
        if outcome is Outcome.DONE:
            self.new_node = False
            self._removed.clear()
        return outcome


_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
Status = Mapping[str, Any]


@dataclass(slots=True)
class _Pending:
    pod: Pod
    status: Status | None = None
    delete: bool = False


class ApiWriter:
    """`tick()` writes what the node owes and returns the seconds until it wants to be called again."""

    def __init__(self, name: str, api: ClusterApi, clock: Clock, tick: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._tick = tick
        self._changed = threading.Condition()
        self._pending: dict[str, _Pending] = {}
        self._written: dict[str, Status] = {}
        self._tick_due = clock.monotonic()
        self._retry_at = 0.0
        self._failures = 0
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, pod: Pod, status: Status, *, again: bool = False) -> None:
        """`again`: also if it is what was written last, because another client wrote since."""
        with self._changed:
            if not again and pod.uid not in self._pending and self._written.get(pod.uid) == status:
                return
            entry = self._pending.setdefault(pod.uid, _Pending(pod))
            entry.pod, entry.status = pod, status
            self._changed.notify()

    def finish(self, pod: Pod) -> None:
        """Delete the pod's object permanently, after its last status."""
        with self._changed:
            entry = self._pending.setdefault(pod.uid, _Pending(pod))
            entry.pod, entry.delete = pod, True
            self._changed.notify()

    def forget(self, pod_uid: str) -> None:
        with self._changed:
            self._pending.pop(pod_uid, None)
            self._written.pop(pod_uid, None)

    def tick_soon(self) -> None:
        with self._changed:
            self._tick_due = self._clock.monotonic()
            self._changed.notify()

    def stop(self, *, drain_seconds: float) -> None:
        """What is pending is still written for this long; a call under way is not waited for beyond that."""
        with self._changed:
            self._stop_at = self._clock.monotonic() + drain_seconds
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(drain_seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = self._clock.monotonic()
                if self._stop_at is not None and (now >= self._stop_at or not self._pending):
                    return
                entry = self._take() if now >= self._retry_at else None
                ticking = self._tick_due <= now and self._stop_at is None
                if entry is None and not ticking:
                    self._changed.wait(self._idle_seconds(now))
                    continue
            if ticking:
                pause = self._tick()
                with self._changed:
                    self._tick_due = self._clock.monotonic() + pause
            if entry is not None:
                self._write(entry)

    def _idle_seconds(self, now: float) -> float:
        due = self._tick_due if self._stop_at is None else self._stop_at
        return max(0.0, min(due, self._retry_at if self._pending else due) - now)

    def _take(self) -> _Pending | None:
        if not self._pending:
            return None
        return self._pending.pop(next(iter(self._pending)))

    def _write(self, entry: _Pending) -> None:
        outcome = Outcome.DONE
        if entry.status is not None:
            outcome = self._api.patch_pod_status(entry.pod, entry.status)
        if entry.delete and outcome is not Outcome.LATER:
            entry.status = None
            outcome = self._api.delete_pod(entry.pod)
        with self._changed:
            if outcome is Outcome.LATER:
                self._put_back(entry)
                self._retry_at = self._clock.monotonic() + _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
                self._failures += 1
                return
            self._failures = 0
            if entry.status is not None and outcome is Outcome.DONE:
                self._written[entry.pod.uid] = entry.status

    def _put_back(self, entry: _Pending) -> None:
        """Unless a newer status came meanwhile."""
        newer = self._pending.get(entry.pod.uid)
        if newer is None:
            self._pending[entry.pod.uid] = entry
            return
        newer.status = newer.status if newer.status is not None else entry.status
        newer.delete = newer.delete or entry.delete

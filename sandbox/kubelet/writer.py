"""Writes to the API in a thread of its own: pod statuses, final deletions, node status and Lease at each tick.

Takes statuses and writes the newest one of each pod once, retried until it is done or pointless, then the deletion if
one is due. A tick writes at most one patch and comes again after the period times 1 to 1.04; a device list that changes
in between waits for it. It is not the sync loop, so a slow API delays no admission, and a slow Allocate delays no
status.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from kube.errors import ApiError, Unavailable
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.devices import Counts
from sandbox.kubelet.node_status import NodeReading, status_patch
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.pods import Pod
from sandbox.loop import Loop
from sandbox.writes import Writes

log = logging.getLogger(__name__)
_JITTER = 0.04
_TICK_RETRY_SECONDS = 0.5
_NO_NODE_SECONDS = 0.05


class NodeTicks:
    def __init__(
        self, parts: KubeletParts, tick_seconds: float, *, new_node: bool, expired: Callable[[], object]
    ) -> None:
        """`expired` is called when the grace period of a resource has ended."""
        self._parts = parts
        self._tick_seconds = tick_seconds
        self._new_node = new_node
        self._expired = expired
        self._removed: set[str] = set()
        self._lease_due = 0.0
        self._report_due = 0.0

    def tick(self) -> float:
        counts = self._counts()
        node = self._parts.node
        if node is None:
            return _NO_NODE_SECONDS
        try:
            if time.monotonic() >= self._lease_due:
                self._parts.api.renew_lease()
                self._lease_due = time.monotonic() + self._parts.timings.lease_renew_seconds
            self._write(node, counts)
        except Unavailable as error:
            log.debug("node %s: %s", node.name, error)
            return _TICK_RETRY_SECONDS
        except ApiError as error:
            log.warning("node %s: the status was refused: %s", node.name, error)
        return self._tick_seconds * (1 + _JITTER * self._parts.random.random())

    def _counts(self) -> Counts:
        counts = self._parts.table.counts(time.monotonic())
        if counts.removed:
            for resource in counts.removed:
                self._parts.endpoints.pop(resource, None)
            self._expired()
        # Kept until a patch has carried them: the table names them only once.
        self._removed = (self._removed | set(counts.removed)) - counts.capacity.keys()
        return Counts(capacity=counts.capacity, allocatable=counts.allocatable, removed=tuple(sorted(self._removed)))

    def _write(self, node: NodeReading, counts: Counts) -> None:
        boots = self._parts.runtime.boots
        due = time.monotonic() >= self._report_due
        patch = status_patch(node, counts, boots=boots, new_node=self._new_node, now=time.time(), due=due)
        if patch is not None:
            self._parts.api.patch_node_status(patch)
            self._report_due = time.monotonic() + self._parts.timings.status_report_seconds
            self._new_node = False
            self._removed.clear()


Status = Mapping[str, Any]


class ApiWriter:
    """`tick()` writes what the node owes and returns the seconds until it wants to be called again."""

    def __init__(self, name: str, api: ClusterApi, tick: Callable[[], float]) -> None:
        self._api = api
        self._tick = tick
        self._loop = Loop(name)
        self._writes = Writes(self._loop)
        self._written: dict[str, Status] = {}

    def start(self) -> None:
        self._loop.post(self._tick_again)
        self._loop.start()

    def submit(self, pod: Pod, status: Status, *, again: bool = False) -> None:
        """`again`: also if it is what was written last, because another client wrote since."""
        key = (pod.uid, "status")
        if again or key in self._writes or self._written.get(pod.uid) != status:
            self._writes.submit(key, lambda: self._write(pod, status))

    def finish(self, pod: Pod) -> None:
        """Delete the pod's object permanently, after its last status."""
        self._writes.submit((pod.uid, "end"), lambda: self._delete(pod))

    def forget(self, pod_uid: str) -> None:
        for what in ("status", "end"):
            self._writes.forget((pod_uid, what))
        self._written.pop(pod_uid, None)

    def stop(self, *, drain_seconds: float) -> None:
        """What is pending is still written for this long; a call under way is not waited for beyond that."""
        self._loop.stop(drain_seconds=drain_seconds, join_seconds=drain_seconds)

    def _tick_again(self) -> None:
        self._loop.after(self._tick(), self._tick_again)

    def _write(self, pod: Pod, status: Status) -> None:
        self._api.patch_pod_status(pod, status)
        self._written[pod.uid] = status

    def _delete(self, pod: Pod) -> None:
        if (pod.uid, "status") in self._writes:
            raise Unavailable("its last status is not written yet")
        self._api.delete_pod(pod)

"""What a kubelet does at each status tick: the node's status, and its Lease.

In: the node as the watch last showed it, the device table. Out: at most one patch per tick, and the seconds until the
next one: the period times 1 to 1.04. A device list that changes in between waits for the tick; nothing makes it come
earlier. Runs in the writer's thread only.
"""

from collections.abc import Callable
from random import Random

from sandbox.kubelet.api import KubeletApi, Outcome
from sandbox.kubelet.clock import Clock
from sandbox.kubelet.devices import Counts, DeviceTable
from sandbox.kubelet.endpoints import Endpoints
from sandbox.kubelet.node_status import NodeReading, heartbeat_patch, status_patch

_JITTER = 0.04
_REPORT_SECONDS = 300.0
_RETRY_SECONDS = 0.5


class NodeTicks:
    def __init__(
        self,
        *,
        api: KubeletApi,
        table: DeviceTable,
        endpoints: Endpoints,
        expired: Callable[[], None],
        clock: Clock,
        random: Random,
        tick_seconds: float,
        lease_seconds: float,
        version: str,
        boots: int,
        new_node: bool,
    ) -> None:
        self.node: NodeReading | None = None
        self._api = api
        self._table = table
        self._endpoints = endpoints
        self._expired = expired
        self._clock = clock
        self._random = random
        self._tick_seconds = tick_seconds
        self._lease_seconds = lease_seconds
        self._version = version
        self._boots = boots
        self._new_node = new_node
        self._removed: set[str] = set()
        self._lease_due = 0.0
        self._report_due = 0.0

    def tick(self) -> float:
        counts = self._counts()
        node = self.node
        if node is None:
            return _RETRY_SECONDS
        now = self._clock.monotonic()
        if now >= self._lease_due:
            self._api.renew_lease(node.name)
            self._lease_due = now + self._lease_seconds
        if self._write(node, counts) is Outcome.LATER:
            return _RETRY_SECONDS
        return self._tick_seconds * (1 + _JITTER * self._random.random())

    def _counts(self) -> Counts:
        counts = self._table.counts(self._clock.monotonic())
        if counts.removed:
            self._endpoints.forget(counts.removed)
            self._expired()
        # Kept until a patch has carried them: the table names them only once.
        self._removed = (self._removed | set(counts.removed)) - counts.capacity.keys()
        return Counts(capacity=counts.capacity, allocatable=counts.allocatable, removed=tuple(sorted(self._removed)))

    def _write(self, node: NodeReading, counts: Counts) -> Outcome:
        wall, now = self._clock.wall(), self._clock.monotonic()
        patch = status_patch(node, counts, version=self._version, boots=self._boots, new_node=self._new_node, now=wall)
        if patch is None and now < self._report_due:
            return Outcome.DONE
        outcome = self._api.patch_node_status(node.name, patch or heartbeat_patch(node, wall))
        if outcome is Outcome.DONE:
            self._new_node = False
            self._removed.clear()
            self._report_due = now + _REPORT_SECONDS
        return outcome

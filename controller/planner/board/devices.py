"""Devices that are alike, sorted by what is left of them: the index in which the planner searches for a place.

A device is a GPU that may be cut, or a stock of partitions of one resource on one node that need no cut. Its state is
one integer: the mask of a MIG GPU, free MiB and free clients of an MPS GPU, the count of a stock. A pool keeps its
devices in buckets of equal state, and knows in which order to try the buckets for a resource: least loss first. Never
decides whether a node has CPU and memory for a pod.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from partitioning.placements import Placement


class Reach(IntEnum):
    """How far a pod may reach for its partitions."""

    EXISTING = 0
    """Only partitions that a node advertises now."""
    UNDER_WAY = 1
    """Also those that GPUs in change will give."""
    NEW = 2
    """Also new ones, on eligible GPUs."""


class Share(NamedTuple):
    """What a pod takes from an MPS GPU."""

    resource: str
    memory_mib: int


class Part(NamedTuple):
    """One partition taken from a device; `what` is None for one of a stock. `ready`: it is cut already."""

    what: Placement | Share | None
    ready: bool = False


NO_PARTS: Mapping[str, tuple[Placement | Share, ...]] = {}


class Tier(IntEnum):
    """The cost of changing a device at all; among equal losses the lower is taken."""

    CHANGED_ANYWAY = 0
    NOTHING_IDLE = 1
    SOMETHING_IDLE = 2


class Fitting(NamedTuple):
    """One more partition in a device: what it costs, the state after it, and what it takes.

    `loss` counts for the pods that are still to be placed, `regret` for those that may come later.
    """

    loss: int
    regret: int
    after: int
    part: Part


class Entry(NamedTuple):
    """One bucket in the order in which a resource tries them; the lowest is best."""

    loss: int
    tier: int
    regret: int
    key: int


@dataclass(slots=True, kw_only=True, eq=False)
class Device:
    """One cuttable GPU or one stock. `base` is the state without what this pass has placed."""

    node: int
    pool: "Pool"
    base: int
    tier: int
    gpu: int = -1
    """The GPU's position on its node; -1 for a stock."""
    ready: Mapping[str, tuple[Placement | Share, ...]] = field(default_factory=lambda: NO_PARTS)
    """Idle partitions of a GPU that pods can have as they are, per resource; space like any other until then."""
    parts: list[Part] = field(default_factory=list)
    state: int = -1
    key: int = -1
    """The bucket that it is in: state and present tier in one integer."""
    position: int = -1
    """Among the devices of its node."""
    drained: bool = False
    """For a pod that waits until holders finish: full for every other pod."""

    @property
    def changed(self) -> bool:
        """Something that is not there yet was placed on it."""
        return bool(self.parts) and any(not part.ready for part in self.parts)

    def restore(self) -> None:
        """Work out the state from what is placed on it."""
        self.state = self.pool.full if self.drained else self.pool.restored(self)


class Pool(ABC):
    """Devices of one kind on the nodes of one group."""

    full = 0
    """The state of a device that holds nothing more."""
    placed = False
    """Where a partition lies on its device matters."""

    def __init__(self, serves: Iterable[str], reach: Reach = Reach.NEW) -> None:
        """`reach`: the minimum reach that may use this pool."""
        self.serves = frozenset(serves)
        self.reach = reach
        self.devices: list[Device] = []
        self.heaps: dict[int, list[tuple[int, int, int]]] = {}
        """Per bucket a heap of (-free CPU of the node, node, position on the node), cleaned when it is read."""
        self._orders: dict[str, list[Entry]] = {}
        self._entries: dict[tuple[int, str], Entry | None] = {}

    @abstractmethod
    def fit(self, state: int, resource: str) -> Fitting | None:
        """The best way to take one more partition of a served resource; None if there is none."""

    @abstractmethod
    def most(self, state: int, resource: str) -> int:
        """No more than so many partitions of a served resource can be taken."""

    @abstractmethod
    def restored(self, device: Device) -> int:
        """The state of a device from its base and its parts."""

    def fit_ready(self, device: Device, state: int, resource: str, taken: int) -> Fitting | None:
        """Take an idle partition as it is; `taken` more of this resource are taken at the same time."""
        ready = device.ready.get(resource, ())
        used = taken + sum(part.ready and part.what in ready for part in device.parts)
        fitting = self.fit(state, resource) if len(ready) > used else None
        return None if fitting is None else fitting._replace(part=Part(ready[0], ready=True))

    def demand(self, resources: Iterable[str]) -> None:  # noqa: B027  # the same for all stocks
        """Set which resources are still to be placed: free space is worth what they can make of it."""

    def bucket(self, state: int) -> int:
        return state

    def gives(self, resource: str) -> bool:
        """Whether any of its devices has room for one, whatever else its node lacks."""
        return resource in self.serves and any(self.most(key >> 2, resource) for key in self.heaps)

    def key_of(self, device: Device) -> int:
        changed = device.parts and device.changed
        return self.bucket(device.state) << 2 | (Tier.CHANGED_ANYWAY if changed else device.tier)

    def order(self, resource: str) -> list[Entry]:
        """The buckets to try for a resource, best first. It changes while buckets come and go."""
        order = self._orders.get(resource)
        if order is None:
            order = self._orders[resource] = sorted(
                entry for key in self.heaps for entry in (self._entry(key, resource),) if entry is not None
            )
        return order

    def enter(self, key: int) -> None:
        """A bucket gets its first device."""
        self.heaps[key] = []
        for resource, order in self._orders.items():
            entry = self._entry(key, resource)
            if entry is not None:
                insort(order, entry)

    def leave(self, key: int) -> None:
        """A bucket is empty."""
        del self.heaps[key]
        for resource, order in self._orders.items():
            entry = self._entry(key, resource)
            if entry is not None:
                order.remove(entry)

    def rate(self, fitting: Fitting, key: int) -> Entry:
        """What taking this from a device in bucket `key` costs."""
        return Entry(fitting.loss, key & 3, fitting.regret, key)

    def _rate_again(self) -> None:
        """What places cost has changed."""
        self._orders.clear()
        self._entries.clear()

    def _entry(self, key: int, resource: str) -> Entry | None:
        known = (key, resource)
        if known not in self._entries:
            fitting = self.fit(key >> 2, resource)
            self._entries[known] = None if fitting is None else self.rate(fitting, key)
        return self._entries[known]

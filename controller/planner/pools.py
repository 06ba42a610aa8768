"""Devices that are alike, sorted by what is left of them: the index in which the planner looks for a place.

A device is a GPU that may be cut, or a stock of partitions of one resource on one node that need no cut. Its state is
one integer: the mask of a MIG GPU, free MiB and free clients of an MPS GPU, the count of a stock. A pool keeps its
devices in buckets of equal state, and knows in which order to try the buckets for a resource: least loss first. Whether
a node has CPU and memory for a pod is the board's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from partitioning.models import GpuModel
from partitioning.mps import MAX_CLIENTS
from partitioning.placements import Placement
from partitioning.states import state_table


class Reach(IntEnum):
    """How far a pod's partitions may be fetched."""

    EXISTING = 0
    """Only partitions that a node offers now."""
    UNDER_WAY = 1
    """Also those that GPUs in change will offer."""
    CHANGED = 2
    """Also new ones, on GPUs that this pass changes anyway."""
    NEW = 3
    """Also new ones on any open GPU."""


class Share(NamedTuple):
    """What a pod takes from an MPS GPU."""

    resource: str
    memory_mib: int


class Part(NamedTuple):
    """One partition taken from a device; `what` is None for one of a stock. `ready`: it is cut already."""

    what: Placement | Share | None
    ready: bool = False


_CLIENT_BITS = 6
_CLIENT_MASK = (1 << _CLIENT_BITS) - 1
_LAST = 1 << 40
"""Above every loss and every room."""
_NO_PARTS: Mapping[str, tuple[Placement | Share, ...]] = {}


class Tier(IntEnum):
    """How unwelcome a change of a device is; among equal losses the lower is taken."""

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
    pool: Pool
    base: int
    tier: int
    gpu: int = -1
    """The GPU's position on its node; -1 for a stock."""
    ready: Mapping[str, tuple[Placement | Share, ...]] = field(default_factory=lambda: _NO_PARTS)
    """Idle partitions of a GPU that pods can have as they are, per resource; space like any other until then."""
    parts: list[Part] = field(default_factory=list)
    state: int = -1
    key: int = -1
    """The bucket that it is in: state and present tier in one integer."""
    position: int = -1
    """In `pool.devices`."""

    @property
    def changed(self) -> bool:
        """Something that is not there yet was placed on it."""
        return any(not part.ready for part in self.parts)


class Pool(ABC):
    """Devices of one kind on the nodes of one group."""

    def __init__(self, serves: Iterable[str], reach: Reach = Reach.CHANGED) -> None:
        """`reach`: how far one must reach at least to take from this pool."""
        self.serves = frozenset(serves)
        self.reach = reach
        self.devices: list[Device] = []
        self.heaps: dict[int, list[tuple[int, int, int]]] = {}
        """Per bucket a heap of (-free CPU of the node, node, position in `devices`), cleaned when it is read."""
        self._orders: dict[str, list[Entry]] = {}
        self._thrifty = False

    @abstractmethod
    def room(self, state: int) -> int:
        """How much a device in this state can still hold, in units that compare devices of one pool."""

    @abstractmethod
    def fit(self, state: int, resource: str) -> Fitting | None:
        """The best way to take one more partition of a served resource; None if there is none."""

    @abstractmethod
    def restored(self, device: Device) -> int:
        """The state of a device from its base and its parts."""

    def fit_ready(self, device: Device, state: int, resource: str, taken: int) -> Fitting | None:
        """Take an idle partition as it is; `taken` more of this resource are spoken for in the same breath."""
        ready = device.ready.get(resource, ())
        gone = taken + sum(part.ready and part.what in ready for part in device.parts)
        fitting = self.fit(state, resource) if len(ready) > gone else None
        return None if fitting is None else fitting._replace(part=Part(ready[0], ready=True))

    def bucket(self, state: int) -> int:
        return state

    def key_of(self, device: Device) -> int:
        return self.bucket(device.state) << 2 | (Tier.CHANGED_ANYWAY if device.changed else device.tier)

    def order(self, resource: str) -> list[Entry]:
        """The buckets to try for a resource, best first. It changes while buckets come and go."""
        order = self._orders.get(resource)
        if order is None:
            order = self._orders[resource] = sorted(
                entry for key in self.heaps for entry in (self._entry(key, resource),) if entry is not None
            )
        return order

    def enter(self, key: int) -> None:
        """A bucket came to life."""
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

    def be_thrifty(self, thrifty: bool) -> None:
        """Where everybody fits, change few devices: those that change anyway first, then those that can hold most."""
        if thrifty != self._thrifty:
            self._thrifty = thrifty
            self._orders.clear()

    def rate(self, fitting: Fitting, key: int) -> Entry:
        """What taking this from a device in bucket `key` costs."""
        tier = key & 3
        if self._thrifty and tier != Tier.CHANGED_ANYWAY:
            return Entry(_LAST - self.room(key >> 2), tier, fitting.regret, key)
        return Entry(fitting.loss, tier, fitting.regret, key)

    def _entry(self, key: int, resource: str) -> Entry | None:
        fitting = self.fit(key >> 2, resource)
        return None if fitting is None else self.rate(fitting, key)


class StockPool(Pool):
    """Partitions of one resource that need no cut: existing ones on closed GPUs, or ones under way."""

    def __init__(self, resource: str, reach: Reach) -> None:
        super().__init__((resource,), reach)

    def room(self, state: int) -> int:
        return state

    def fit(self, state: int, resource: str) -> Fitting | None:
        if state <= 0 or resource not in self.serves:
            return None
        return Fitting(loss=0, regret=0, after=state - 1, part=Part(None, ready=True))

    def restored(self, device: Device) -> int:
        return device.base - len(device.parts)

    def bucket(self, state: int) -> int:
        # One bucket for all that have any: the scheduler, too, looks at the node's other resources then.
        return min(state, 1)


class MigPool(Pool):
    """MIG GPUs of one model. `demanded` are the profiles still to be placed: only they give free space a value."""

    def __init__(self, model: GpuModel, profiles: Mapping[str, str]) -> None:
        """`profiles`: profile per resource name that pods ask for."""
        super().__init__(profiles)
        self.table = state_table(model)
        self.profiles = profiles
        self.model = model
        self._slots = (1 << model.slots) - 1
        self._demanded = frozenset(profiles.values())
        self._fittings: dict[tuple[int, str], Fitting | None] = {}
        self._fittings_of = {self._demanded: self._fittings}

    def demand(self, resources: Iterable[str]) -> None:
        """Say which resources are still to be placed: free space is worth what they can make of it."""
        demanded = frozenset(self.profiles[name] for name in resources if name in self.profiles)
        if demanded != self._demanded:
            self._demanded = demanded
            self._fittings = self._fittings_of.setdefault(demanded, {})
            self._orders.clear()

    def fit(self, state: int, resource: str) -> Fitting | None:
        key = (state, resource)
        if key not in self._fittings:
            choice = self.table.cheapest(state, self.profiles[resource], self._demanded)
            self._fittings[key] = None if choice is None else self._fitting(state, Part(choice.placement), choice.mask)
        return self._fittings[key]

    def fit_ready(self, device: Device, state: int, resource: str, taken: int) -> Fitting | None:
        ready = device.ready.get(resource, ())
        # One that is taken overlaps itself.
        for what in ready if taken < len(ready) else ():
            if isinstance(what, Placement) and not state & what.blockers:
                return self._fitting(state, Part(what, ready=True), state | what.taken)
        return None

    def _fitting(self, state: int, part: Part, after: int) -> Fitting:
        loss = self.potential(state) - self.potential(after)
        # Which pods come later is not known: what counts is how much of any kind is spoiled, then how full the GPU is.
        spoiled = self.table.potential(state) - self.table.potential(after)
        regret = spoiled * (self.model.slots + 1) - (state & self._slots).bit_count()
        return Fitting(loss=loss, regret=regret, after=after, part=part)

    def room(self, state: int) -> int:
        return self.potential(state)

    def potential(self, state: int) -> int:
        """Compute slices that demanded profiles can still get from a GPU in this state."""
        return self.table.potential(state, self._demanded)

    def free_slots(self, state: int) -> int:
        return self.model.slots - (state & self._slots).bit_count()

    def restored(self, device: Device) -> int:
        mask = device.base
        for part in device.parts:
            assert isinstance(part.what, Placement)
            mask |= part.what.taken
        return mask


class MpsPool(Pool):
    """GPUs shared by MPS, of any model: free memory is free memory. The loss is what remains, so the tightest wins."""

    def __init__(self, sizes_mib: Mapping[str, int]) -> None:
        super().__init__(sizes_mib)
        self.sizes_mib = sizes_mib

    def room(self, state: int) -> int:
        return self.free_mib(state)

    @staticmethod
    def state_of(free_mib: int, clients: int) -> int:
        """Free memory above the clients that may still come, so that states sort by free memory."""
        return max(0, free_mib) << _CLIENT_BITS | max(0, MAX_CLIENTS - clients)

    @staticmethod
    def free_mib(state: int) -> int:
        return state >> _CLIENT_BITS

    @staticmethod
    def clients(state: int) -> int:
        """How many clients may still come."""
        return state & _CLIENT_MASK

    def fit(self, state: int, resource: str) -> Fitting | None:
        size_mib = self.sizes_mib[resource]
        left_mib = self.free_mib(state) - size_mib
        if left_mib < 0 or not self.clients(state):
            return None
        part = Part(Share(resource, size_mib))
        return Fitting(loss=left_mib, regret=0, after=state - (size_mib << _CLIENT_BITS) - 1, part=part)

    def restored(self, device: Device) -> int:
        shares = [part.what for part in device.parts if isinstance(part.what, Share)]
        taken_mib = sum(share.memory_mib for share in shares)
        return device.base - (taken_mib << _CLIENT_BITS) - len(shares)

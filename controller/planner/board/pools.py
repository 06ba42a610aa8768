"""The three kinds of pools: stocks that need no cut, MIG GPUs of one model, GPUs shared by MPS.

Each knows what its states mean, what one more partition costs in a state, and what is ready. Everything else about
pools is in `devices`. Never knows which pod takes a partition.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate

from controller.planner.board.devices import Device, Fitting, Part, Pool, Reach, Share
from partitioning.models import GpuModel
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB, MAX_CLIENTS
from partitioning.placements import Placement, rule_bits
from partitioning.resources import WHOLE
from partitioning.states import StateTable, state_table

_MOST_GB = 512
"""More memory than any GPU has."""
_MOST_PROFILES = 64
"""More than any model has."""
_CLIENT_BITS = 6
_CLIENT_MASK = (1 << _CLIENT_BITS) - 1


class StockPool(Pool):
    """Partitions of one resource that need no cut: existing ones on ineligible GPUs, or ones under way."""

    def __init__(self, resource: str, reach: Reach) -> None:
        super().__init__((resource,), reach)

    def fit(self, state: int, resource: str) -> Fitting | None:
        if state <= 0 or resource not in self.serves:
            return None
        return Fitting(loss=0, regret=0, after=state - 1, part=Part(None, ready=True))

    def most(self, state: int, resource: str) -> int:
        return state if resource in self.serves else 0

    def restored(self, device: Device) -> int:
        return device.base - len(device.parts)

    def bucket(self, state: int) -> int:
        # One bucket for all that have any: the scheduler, too, compares the node's other resources then.
        return min(state, 1)


@lru_cache(maxsize=65536)
def _most_in(table: StateTable, state: int) -> tuple[int, ...]:
    """Of each profile. Every group of nodes has GPUs in the same few states."""
    return tuple(map(max, zip(*table.pareto(state), strict=True)))


class MigPool(Pool):
    """MIG GPUs of one model. `demanded` are the profiles still to be placed: only they give free space a value."""

    placed = True

    def __init__(self, model: GpuModel, profiles: Mapping[str, str]) -> None:
        """`profiles`: profile per requested resource name."""
        super().__init__(profiles)
        self.table = state_table(model)
        self.profiles = profiles
        self.model = model
        self._slots = (1 << model.slots) - 1
        self.full = (1 << rule_bits(model)) - 1
        self._demanded = frozenset(profiles.values())
        self._fittings: dict[tuple[int, str, int], Fitting | None] = {}
        """By state, resource and what an idle instance takes; 0 for a new one."""
        self._fittings_of = {self._demanded: self._fittings}
        self._most: dict[tuple[int, str], int] = {}

    def demand(self, resources: Iterable[str]) -> None:
        demanded = frozenset(self.profiles[name] for name in resources if name in self.profiles)
        if demanded != self._demanded:
            self._demanded = demanded
            self._fittings = self._fittings_of.setdefault(demanded, {})
            self._rate_again()

    def fit(self, state: int, resource: str) -> Fitting | None:
        key = (state, resource, 0)
        if key not in self._fittings:
            choice = self.table.cheapest(state, self.profiles[resource], self._demanded)
            self._fittings[key] = None if choice is None else self._fitting(state, Part(choice.placement), choice.mask)
        return self._fittings[key]

    def fit_ready(self, device: Device, state: int, resource: str, taken: int) -> Fitting | None:
        ready = device.ready.get(resource, ())
        # One that is taken overlaps itself.
        for what in ready if taken < len(ready) else ():
            if isinstance(what, Placement) and not state & what.blockers:
                key = (state, resource, what.taken)
                if key not in self._fittings:
                    self._fittings[key] = self._fitting(state, Part(what, ready=True), state | what.taken)
                return self._fittings[key]
        return None

    def most(self, state: int, resource: str) -> int:
        found = self._most.get((state, resource))
        if found is None:
            at = self.table.profiles.index(self.profiles[resource])
            found = self._most[state, resource] = _most_in(self.table, state)[at]
        return found

    def _fitting(self, state: int, part: Part, after: int) -> Fitting:
        loss = self.potential(state) - self.potential(after)
        # Which pods come later is not known: what counts is how much of any kind is spoiled, then how many other
        # profiles the model could serve of those that are still to be placed, then how full the GPU is.
        spoiled = self.table.potential(state) - self.table.potential(after)
        regret = (spoiled * _MOST_PROFILES + len(self._demanded)) * (self.model.slots + 1)
        regret -= (state & self._slots).bit_count()
        return Fitting(loss=loss, regret=regret, after=after, part=part)

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
    """GPUs shared by MPS, of any model: free memory is free memory.

    Free memory is worth what slices of the demanded sizes can make of it; of equal losses the tightest GPU wins. One
    that has no client may also be taken whole, and then it is full.
    """

    def __init__(self, sizes_mib: Mapping[str, int], *, whole: bool = False) -> None:
        super().__init__((*sizes_mib, *((WHOLE,) if whole else ())))
        self.whole = whole
        self.sizes_mib = sizes_mib
        self.sizes_gb = {name: -(-mib * BYTES_PER_MIB // BYTES_PER_GB) for name, mib in sizes_mib.items()}
        self._demanded = frozenset(self.sizes_gb.values())
        self._fillable = fillable(self._demanded)

    def demand(self, resources: Iterable[str]) -> None:
        demanded = frozenset(self.sizes_gb[name] for name in resources if name in self.sizes_gb)
        if demanded != self._demanded:
            self._demanded, self._fillable = demanded, fillable(demanded)
            self._rate_again()

    def potential(self, state: int) -> int:
        """The most GB that slices of the demanded sizes can still take; names of sizes are whole GB."""
        return self._fillable[whole_gb(self.free_mib(state) + 1)]

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

    @classmethod
    def uncut(cls, state: int) -> bool:
        return cls.clients(state) == MAX_CLIENTS

    def fit(self, state: int, resource: str) -> Fitting | None:
        if resource == WHOLE:
            part = Part(Share(WHOLE, self.free_mib(state)))
            return Fitting(loss=self.free_mib(state), regret=0, after=0, part=part) if self.uncut(state) else None
        size_mib = self.sizes_mib[resource]
        left_mib = self.free_mib(state) - size_mib
        if left_mib < 0 or not self.clients(state):
            return None
        after = state - (size_mib << _CLIENT_BITS) - 1
        loss = self.potential(state) - self.potential(after)
        return Fitting(loss=loss, regret=left_mib, after=after, part=Part(Share(resource, size_mib)))

    def most(self, state: int, resource: str) -> int:
        if resource == WHOLE:
            return int(self.uncut(state))
        return min(self.clients(state), self.free_mib(state) // self.sizes_mib[resource])

    def restored(self, device: Device) -> int:
        shares = [part.what for part in device.parts if isinstance(part.what, Share)]
        if any(share.resource == WHOLE for share in shares):
            return 0
        return device.base - (sum(share.memory_mib for share in shares) << _CLIENT_BITS) - len(shares)


def whole_gb(mib: int) -> int:
    return min(mib * BYTES_PER_MIB // BYTES_PER_GB, _MOST_GB)


@lru_cache(maxsize=512)
def fillable(sizes: frozenset[int]) -> tuple[int, ...]:
    """Per amount of memory in GB, how much of it slices of these sizes can take at most."""
    # A bit for each sum: a user may request every size that there is, and packing reads very many sets of them. What is
    # larger than any GPU fits nowhere, and would shift by as many bits as a user writes.
    reached = 1
    for step in (s << n for s in sizes if s <= _MOST_GB for n in range(_MOST_GB.bit_length())):
        reached |= reached << step & (2 << _MOST_GB) - 1
    return tuple(accumulate(range(_MOST_GB + 1), lambda most, amount: amount if reached >> amount & 1 else most))

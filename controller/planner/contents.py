"""What it costs to put more partitions on a device: GPUs changed plus idle partitions destroyed.

In go a device, the stock behind it and the parts that stay on it, out comes a number per further content, or None where
that does not fit. Counts decide, as in `realise`: where instances go is chosen anew for every content, so that as many
idle ones as possible survive. Nothing on the board is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from controller.model.demand import kind_of
from controller.planner.devices import Device, Part, Share
from controller.planner.inventory import GpuStock, mig_layout, slice_mib
from controller.planner.pools import MigPool, MpsPool
from partitioning.layouts import Layout
from partitioning.models import GpuModel
from partitioning.packing import Packed, pack
from partitioning.placements import Placement, placement_of
from partitioning.resources import WHOLE, MpsRequest

Content = tuple[int, ...]
"""How many partitions of each resource, in the order of `Contents.resources`."""


@dataclass(frozen=True, slots=True)
class _Mig:
    """A MIG GPU. `failed` stays clear and is not made."""

    model: GpuModel
    profiles: tuple[str, ...]
    standing: Layout
    idle: Layout
    failed: Layout
    observed: Layout

    def packed(self, content: Content) -> Packed | None:
        wanted = {name: count for name, count in zip(self.profiles, content, strict=True) if count}
        if "" in wanted:
            return None
        found = pack(self.model, pinned=self.standing.union(self.failed), wanted=wanted, prefer=self.idle)
        return found if isinstance(found, Packed) else None

    def cost(self, content: Content) -> int | None:
        packed = self.packed(content)
        if packed is None:
            return None
        layout = packed.with_spare.without(self.failed)
        destroyed = sum(one not in layout for one in self.observed)
        return 1 + destroyed if destroyed or len(layout) > len(self.observed) else 0


@dataclass(frozen=True, slots=True)
class _Mps:
    """A GPU that MPS may share, or that may be had whole as long as it has no client."""

    sizes_mib: tuple[int, ...]
    """Per resource; 0 for what it does not serve."""
    whole: int
    """The position of whole GPUs among the resources, where it may be had so; else -1."""
    offered_whole: bool
    free_mib: int
    clients: int
    idle: tuple[tuple[int, int], ...]
    """Idle slices: MiB, and the resource's position or -1."""
    changed: bool
    """By what stands there."""

    def cost(self, content: Content) -> int | None:
        if self.whole >= 0 and content[self.whole]:
            if sum(content) > 1:
                return None
            return 0 if self.offered_whole else 1 + len(self.idle)
        left_mib = self.free_mib - sum(count * size for count, size in zip(content, self.sizes_mib, strict=True))
        left = self.clients - sum(content)
        if left_mib < 0 or left < 0 or any(n and not size for n, size in zip(content, self.sizes_mib, strict=True)):
            return None
        wanted, destroyed = list(content), 0
        for size_mib, position in self.idle:
            if position >= 0 and wanted[position]:
                wanted[position] -= 1
            elif size_mib <= left_mib and left:
                left_mib, left = left_mib - size_mib, left - 1
            else:
                destroyed += 1
        return 1 + destroyed if destroyed or any(wanted) or self.changed else 0


@dataclass(frozen=True, slots=True)
class _Stock:
    """Partitions of one resource that need no cut."""

    position: int
    left: int

    def cost(self, content: Content) -> int | None:
        return 0 if sum(content) == content[self.position] <= self.left else None


class Contents:
    """Devices that are alike share one number, and their costs are computed once."""

    def __init__(self, resources: Sequence[str]) -> None:
        self.resources = list(resources)
        self._positions = {name: position for position, name in enumerate(resources)}
        self._numbers: dict[Hashable, int] = {}
        self._kinds: list[_Mig | _Mps | _Stock] = []
        self._costs: dict[tuple[int, Content], int | None] = {}

    def kind_of(self, device: Device, gpu: GpuStock | None, standing: Sequence[Part]) -> int:
        """`standing`: the parts of the device that stay where they are."""
        kind = self._described(device, gpu, standing)
        number = self._numbers.setdefault(kind, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(kind)
        return number

    def cost(self, kind: int, content: Content) -> int | None:
        key = (kind, content)
        if key not in self._costs:
            self._costs[key] = self._kinds[kind].cost(content)
        return self._costs[key]

    def parts(self, device: Device, kind: int, content: Content, standing: Sequence[Part]) -> dict[str, list[Part]]:
        """The content as parts of this device, per resource; idle partitions that serve as they are come first."""
        described = self._kinds[kind]
        if isinstance(described, _Mig):
            return self._mig_parts(device, described, content)
        found: dict[str, list[Part]] = {}
        for resource, count in zip(self.resources, content, strict=True):
            if count and isinstance(described, _Stock):
                found[resource] = [Part(None, ready=True)] * count
            elif count:
                share = Share(resource, MpsPool.free_mib(device.base) if resource == WHOLE else slice_mib(resource))
                ready = len(device.ready.get(resource, ())) - sum(
                    part.ready and part.what == share for part in standing
                )
                found[resource] = [Part(share, ready=number < ready) for number in range(count)]
        return found

    def _mig_parts(self, device: Device, described: _Mig, content: Content) -> dict[str, list[Part]]:
        packed = described.packed(content)
        assert packed is not None
        found: dict[str, list[Part]] = {}
        names = {profile: name for profile, name in zip(described.profiles, self.resources, strict=True) if profile}
        for instance in packed.layout.without(described.standing).without(described.failed):
            place = placement_of(described.model, instance)
            name = names[place.instance.profile]
            found.setdefault(name, []).append(Part(place, ready=place in device.ready.get(name, ())))
        for parts in found.values():
            parts.sort(key=lambda part: not part.ready)
        return found

    def _described(self, device: Device, gpu: GpuStock | None, standing: Sequence[Part]) -> _Mig | _Mps | _Stock:
        if gpu is None:
            (resource,) = device.pool.serves
            return _Stock(self._positions.get(resource, 0), device.base - len(standing))
        if isinstance(device.pool, MigPool):
            return self._mig(device.pool, gpu, standing)
        assert isinstance(device.pool, MpsPool)
        return self._mps(device, device.pool, gpu, standing)

    def _mig(self, pool: MigPool, gpu: GpuStock, standing: Sequence[Part]) -> _Mig:
        staying = mig_layout(gpu.staying)
        idle = mig_layout(gpu.idle)
        placed = [part.what.instance for part in standing if isinstance(part.what, Placement)]
        return _Mig(
            model=pool.model,
            profiles=tuple(pool.profiles.get(name, "") for name in self.resources),
            standing=staying.union(placed),
            idle=idle.without(placed),
            failed=gpu.failed,
            observed=staying.union(idle),
        )

    def _mps(self, device: Device, pool: MpsPool, gpu: GpuStock, standing: Sequence[Part]) -> _Mps:
        shares = [part.what for part in standing if isinstance(part.what, Share)]
        whole = any(share.resource == WHOLE for share in shares)
        there = Counter(share.resource for share in shares)
        idle = []
        for part in sorted(gpu.idle, key=lambda part: (part.memory_mib or slice_mib(part.resource), part.resource)):
            if there[part.resource]:
                there[part.resource] -= 1
            elif isinstance(kind_of(part.resource), MpsRequest):
                idle.append((part.memory_mib or slice_mib(part.resource), self._positions.get(part.resource, -1)))
        free = pool.whole and pool.uncut(device.base) and not shares
        return _Mps(
            sizes_mib=tuple(pool.sizes_mib.get(name, 0) for name in self.resources),
            whole=self._positions.get(WHOLE, -1) if free else -1,
            offered_whole=bool(device.ready.get(WHOLE)),
            free_mib=0 if whole else pool.free_mib(device.base) - sum(share.memory_mib for share in shares),
            clients=pool.clients(device.base) - len(shares),
            idle=tuple(idle),
            changed=any(not part.ready for part in standing),
        )

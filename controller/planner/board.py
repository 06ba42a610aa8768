"""The mutable board of one pass: what each node and device has left, and which ask stands where.

Asks (pending pods) are put on nodes and taken off again; the board keeps CPU, memory, pod slots, other resources and
host ports of nodes, and the states of devices, consistent. It finds the best place for one ask; which asks to try, and
in which order, is decided elsewhere. Nothing here looks at a view of the cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from controller.demand import Demand
from controller.planner.pools import Device, Fitting, Part, Pool
from controller.simulator import Usage

_PROBES = 32
"""How many nodes with enough CPU but too little of something else are looked at in one bucket."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ask:
    """One pod on its way to a place. `groups` are the node groups that its selectors and tolerations allow."""

    demand: Demand
    groups: tuple[int, ...]
    cpu: int
    memory: int
    single: str | None
    shape: Hashable
    """Equal for asks that fit exactly where the other fits."""
    node: int = -1
    taken: list[tuple[Device, Part]] = field(default_factory=list)

    @property
    def odd(self) -> bool:
        """It needs more than CPU, memory and partitions."""
        return bool(self.demand.other or self.demand.pod.host_ports)


@dataclass(slots=True, kw_only=True, eq=False)
class Room:
    """What a node has left beside its devices. `usage` matters for asks with ports or other resources only."""

    cpu: int
    memory: int
    pods: int
    allocatable: Mapping[str, int]
    usage: Usage


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """Nodes that no pending pod can tell apart by labels and taints."""

    nodes: list[int] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    """Stocks before devices that must be cut."""
    _serving: dict[str, list[Pool]] = field(default_factory=dict)

    def add_pool(self, pool: Pool) -> None:
        self.pools.append(pool)
        self._serving.clear()

    def serving(self, resource: str) -> list[Pool]:
        found = self._serving.get(resource)
        if found is None:
            found = self._serving[resource] = [pool for pool in self.pools if resource in pool.serves]
        return found


class Board:
    def __init__(self, rooms: Sequence[Room], groups: Sequence[Group], group_of: Sequence[int], sizes: Sequence[str]):
        """`sizes`: all resources, the hardest to place first."""
        self.rooms = rooms
        self.groups = groups
        self.group_of = group_of
        self.sizes = list(sizes)
        self.devices: list[list[Device]] = [[] for _ in rooms]
        self._rank = {resource: position for position, resource in enumerate(sizes)}
        self._dead: set[tuple[Hashable, int, bool]] = set()
        self._queues: dict[int, list[int]] = {}

    # ------------------------------------------------------------------------------------------- devices

    def add(self, device: Device) -> None:
        self.devices[device.node].append(device)
        pool = device.pool
        pool.devices.append(device)
        self._enter(device, len(pool.devices) - 1)

    def restate(self, device: Device, state: int) -> None:
        """Give a device a new base without regard to what was taken from it."""
        device.parts.clear()
        device.base = state
        self._set(device, state)

    def _enter(self, device: Device, position: int) -> None:
        key = device.rekey()
        if key not in device.pool.heaps:
            device.pool.enter(key)
        heappush(device.pool.heaps[key], (-self.rooms[device.node].cpu, device.node, position))
        device.position = position

    def _set(self, device: Device, state: int) -> None:
        device.state = state
        self._enter(device, device.position)

    # ------------------------------------------------------------------------------------------- placing

    def place(self, ask: Ask, groups: Iterable[int] | None = None, *, stock_only: bool = False) -> bool:
        """Put an ask on the best node of these groups (default: all that it may use)."""
        for group in ask.groups if groups is None else groups:
            key = (ask.shape, group, stock_only)
            if key in self._dead:
                continue
            found = (
                self._place_single(ask, group, stock_only) if ask.single else self._place_many(ask, group, stock_only)
            )
            if found:
                return True
            # Room only shrinks until something is taken off, so whatever failed here goes on failing.
            self._dead.add(key)
        return False

    def place_on(self, ask: Ask, node: int, *, stock_only: bool = False) -> bool:
        if not self.fits(ask, node):
            return False
        found = self._on_node(ask, node, stock_only)
        if found is None:
            return False
        self._commit(ask, node, found)
        return True

    def take_off(self, ask: Ask) -> None:
        room = self.rooms[ask.node]
        room.cpu += ask.cpu
        room.memory += ask.memory
        room.pods += 1
        if ask.odd:
            room.usage.remove(ask.demand.pod)
        for device, part in ask.taken:
            device.parts.remove(part)
            self._set(device, device.pool.restored(device))
        # The node has more CPU now than its other entries say, and they would be passed over.
        for device in self.devices[ask.node]:
            self._enter(device, device.position)
        ask.node = -1
        ask.taken = []
        self._dead.clear()
        self._queues.clear()

    def fits(self, ask: Ask, node: int) -> bool:
        """Everything but partitions."""
        room = self.rooms[node]
        if room.cpu < ask.cpu or room.memory < ask.memory or room.pods < 1:
            return False
        return not ask.odd or self._fits_odd(ask, room)

    def has_partitions(self, ask: Ask, node: int) -> bool:
        """Partitions alone: whether its devices could serve the ask now."""
        return self._on_node(ask, node, stock_only=False) is not None

    @staticmethod
    def _fits_odd(ask: Ask, room: Room) -> bool:
        if room.usage.conflicts(ask.demand.pod.host_ports):
            return False
        requested = room.usage.requested
        return all(
            amount <= room.allocatable.get(resource, 0) - requested.get(resource, 0)
            for resource, amount in ask.demand.other
        )

    def _commit(self, ask: Ask, node: int, found: list[tuple[Device, Fitting]]) -> None:
        room = self.rooms[node]
        room.cpu -= ask.cpu
        room.memory -= ask.memory
        room.pods -= 1
        if ask.odd:
            room.usage.add(ask.demand.pod)
        ask.node = node
        for device, fitting in found:
            device.parts.append(fitting.part)
            ask.taken.append((device, fitting.part))
            self._set(device, fitting.after)

    # ----------------------------------------------------------------------------------------- one partition

    def _place_single(self, ask: Ask, group: int, stock_only: bool) -> bool:
        resource = ask.single
        assert resource is not None
        for pool in self.groups[group].serving(resource):
            if stock_only and pool.makes_new:
                continue
            device = self._search(pool, resource, ask)
            if device is not None:
                fitting = pool.fit(device.state, resource)
                assert fitting is not None
                self._commit(ask, device.node, [(device, fitting)])
                return True
        return False

    def _search(self, pool: Pool, resource: str, ask: Ask) -> Device | None:
        order = pool.order(resource)
        position = 0
        while position < len(order):
            key = order[position].key
            device = self._roomiest(pool, key, ask)
            if device is not None:
                return device
            if key in pool.heaps:
                position += 1
        return None

    def _roomiest(self, pool: Pool, key: int, ask: Ask) -> Device | None:
        """The device of a bucket whose node has most CPU, if the ask fits there."""
        heap = pool.heaps[key]
        aside: list[tuple[int, int, int]] = []
        found = None
        while heap and len(aside) < _PROBES:
            free, node, position = heap[0]
            device = pool.devices[position]
            if device.key != key:
                heappop(heap)
            elif -free != self.rooms[node].cpu:
                heapreplace(heap, (-self.rooms[node].cpu, node, position))
            elif -free < ask.cpu:
                break
            elif self.fits(ask, node):
                found = device
                break
            else:
                aside.append(heappop(heap))
        if aside:
            heap.extend(aside)
            heapify(heap)
        if not heap:
            pool.leave(key)
        return found

    # -------------------------------------------------------------------------------------- several partitions

    def _place_many(self, ask: Ask, group: int, stock_only: bool) -> bool:
        """The partitions of one pod come from one node, and from as many of its GPUs as need be."""
        return any(self.place_on(ask, node, stock_only=stock_only) for node in self._queue(group))

    def _queue(self, group: int) -> list[int]:
        """Nodes of a group, the fullest first, so that empty nodes stay whole."""
        queue = self._queues.get(group)
        if queue is None:
            load = {node: sum(len(device.parts) for device in self.devices[node]) for node in self.groups[group].nodes}
            queue = self._queues[group] = sorted(load, key=lambda node: (-load[node], node))
        return queue

    def _on_node(self, ask: Ask, node: int, stock_only: bool) -> list[tuple[Device, Fitting]] | None:
        """Choose devices for all partitions of an ask, hardest first, each where it costs least."""
        states: dict[int, int] = {}
        found: list[tuple[Device, Fitting]] = []
        for resource, count in sorted(ask.demand.wants, key=lambda want: self._rank[want[0]]):
            for _ in range(count):
                best = self._best_device(node, resource, states, stock_only)
                if best is None:
                    return None
                device, fitting = best
                states[id(device)] = fitting.after
                found.append(best)
        return found

    def _best_device(
        self, node: int, resource: str, states: dict[int, int], stock_only: bool
    ) -> tuple[Device, Fitting] | None:
        best: tuple[Device, Fitting] | None = None
        least: tuple[bool, int, int, int] | None = None
        for device in self.devices[node]:
            pool = device.pool
            if resource not in pool.serves or (stock_only and pool.makes_new):
                continue
            fitting = pool.fit(states.get(id(device), device.state), resource)
            if fitting is None:
                continue
            cost = (pool.makes_new, fitting.loss, device.key & 3, fitting.regret)
            if least is None or cost < least:
                least, best = cost, (device, fitting)
        return best

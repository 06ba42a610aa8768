"""The mutable board of one pass: what each node and device has left, and which ask stands where.

Asks (pending pods) are put on nodes and taken off again; the board keeps CPU, memory, pod slots, other resources and
host ports of nodes, and the states of devices, consistent. It finds the best place for one ask; which asks to try, and
in which order, is decided elsewhere. Nothing here looks at a view of the cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from controller.planner.board.assignment import Ask, Group, Room, Taken
from controller.planner.board.candidates import Queues, on_node
from controller.planner.board.devices import Device, Fitting, Part, Pool, Reach, Tier

_PROBES = 32
"""How many nodes with enough CPU but too little of something else are looked at in one bucket."""
_COMPARED, _COMPARISONS = 12, 2_000
"""How many nodes are compared for one pod with several partitions, and how many in one pass."""


class Board:
    def __init__(self, rooms: Sequence[Room], groups: Sequence[Group], group_of: Sequence[int], sizes: Sequence[str]):
        """`sizes`: all resources, the hardest to place first."""
        self.rooms = rooms
        self.groups = groups
        self.group_of = group_of
        self.sizes = list(sizes)
        self.devices: list[list[Device]] = [[] for _ in rooms]
        self.at_first = [(room.cpu, room.memory, room.pods) for room in rooms]
        """CPU, memory and pod slots of each node before anything was placed; of devices it is the base."""
        self.rank = {resource: position for position, resource in enumerate(sizes)}
        self._dead: set[tuple[Hashable, int, Reach]] = set()
        self._queues = Queues(groups, self.devices)
        self._missed: dict[Hashable, dict[int, int]] = {}
        """Per several partitions and reach: nodes that lacked them, after how many changes of the node."""
        self._gpus: dict[tuple[int, int], Device] = {}
        self._comparisons = _COMPARISONS

    def add(self, device: Device) -> None:
        """Its pool must be in the group of its node."""
        self.devices[device.node].append(device)
        device.position = len(device.pool.devices)
        device.pool.devices.append(device)
        device.state = device.base
        if device.ready:
            self._gpus[device.node, device.gpu] = device
        if device.ready or device.gpu < 0:
            self._queues.add(device)
        self._enter(device)

    def _enter(self, device: Device) -> None:
        """Put a device into the bucket of its state, with its node's present CPU."""
        pool, free = device.pool, -self.rooms[device.node].cpu
        device.key = pool.key_of(device)
        if device.key not in pool.heaps:
            pool.enter(device.key)
        heappush(pool.heaps[device.key], (free, device.node, device.position))
        if device.ready:
            ready = self.groups[self.group_of[device.node]].ready
            for resource in device.ready:
                heappush(ready.setdefault(resource, []), (free, device.node, device.gpu))

    # ------------------------------------------------------------------------------------------- asks

    def place(self, ask: Ask, groups: Iterable[int] | None = None, *, reach: Reach = Reach.NEW) -> bool:
        """Put an ask on the best node of these groups (default: all that it may use)."""
        for group in ask.groups if groups is None else groups:
            key = (ask.shape, group, reach)
            if key in self._dead:
                continue
            if self._place_single(ask, group, reach) if ask.single else self._place_many(ask, group, reach):
                return True
            # Room only shrinks until something is taken off, so whatever failed here goes on failing; only changed
            # devices become more.
            if reach is not Reach.CHANGED:
                self._dead.add(key)
        return False

    def place_on(self, ask: Ask, node: int, *, reach: Reach = Reach.NEW) -> bool:
        found = on_node(self, ask, node, reach) if self.fits(ask, node) else None
        if found is None:
            return False
        self._commit(ask, node, [(device, fitting.part) for device, fitting in found])
        return True

    def take_off(self, ask: Ask) -> tuple[int, Taken]:
        """Returns where it stood, for `put_back`."""
        node, taken = self.lift(ask)
        self.settle((node,))
        return node, taken

    def clear(self, asks: Iterable[Ask]) -> None:
        """Take all of them off that stand here."""
        standing = [ask for ask in asks if ask.node >= 0]
        self.settle({self.lift(ask)[0] for ask in standing})

    def lift(self, ask: Ask) -> tuple[int, Taken]:
        """Take it off for a trial: only `place_on` may follow, until it is put back or its node is settled."""
        node, taken = ask.node, ask.taken
        room = self.rooms[node]
        room.cpu += ask.cpu
        room.memory += ask.memory
        room.pods += 1
        room.changes += 1
        if ask.odd:
            room.usage.remove(ask.demand.pod)
        for device, part in taken:
            device.parts.remove(part)
            device.state = device.pool.full if device.reserved else device.pool.restored(device)
        ask.node, ask.taken = -1, []
        return node, taken

    def settle(self, nodes: Iterable[int]) -> None:
        """What was lifted from these nodes is room for everybody."""
        # They have more CPU now than the entries of their devices say, and would be passed over.
        for node in nodes:
            for device in self.devices[node]:
                self._enter(device)
        self._dead.clear()
        self._queues.renew()

    def put_back(self, ask: Ask, node: int, taken: Taken) -> None:
        """Exactly where it was before; nothing may have come in between."""
        self._commit(ask, node, taken)

    def restore(self, there: Iterable[Ask], before: Iterable[tuple[Ask, int, Taken]]) -> None:
        """Take off those that stand there now, and put back those that stood before: `clear` and `put_back` in one."""
        nodes = {self.lift(ask)[0] for ask in there if ask.node >= 0}
        for ask, node, taken in before:
            self._stand(ask, node, taken)
            nodes.add(node)
        self.settle(nodes)

    def fits(self, ask: Ask, node: int) -> bool:
        """Everything but partitions."""
        room = self.rooms[node]
        if room.cpu < ask.cpu or room.memory < ask.memory or room.pods < 1:
            return False
        return not ask.odd or self._fits_odd(ask, room)

    def reserve(self, ask: Ask, device: Device) -> None:
        """Keep a device, and what the pod needs of its node, from every pod that is placed after this."""
        room = self.rooms[device.node]
        room.cpu -= ask.cpu
        room.memory -= ask.memory
        room.pods -= 1
        room.changes += 1
        if ask.odd:
            room.usage.add(ask.demand.pod)
        device.reserved = True
        device.state = device.pool.full
        self._enter(device)

    def release(self, ask: Ask, device: Device) -> None:
        """Take a reservation back."""
        room = self.rooms[device.node]
        room.cpu += ask.cpu
        room.memory += ask.memory
        room.pods += 1
        if ask.odd:
            room.usage.remove(ask.demand.pod)
        device.reserved = False
        device.state = device.pool.restored(device)
        self.settle((device.node,))

    def has_partitions(self, ask: Ask, node: int) -> bool:
        """Partitions alone: whether its devices could serve the ask now."""
        return on_node(self, ask, node, Reach.NEW) is not None

    @staticmethod
    def _fits_odd(ask: Ask, room: Room) -> bool:
        if room.usage.conflicts(ask.demand.pod.host_ports):
            return False
        return all(
            amount <= room.allocatable.get(resource, 0) - room.usage.held[resource]
            for resource, amount in ask.demand.needs.other
        )

    def _commit(self, ask: Ask, node: int, taken: Taken) -> None:
        self._stand(ask, node, taken)
        for device, _ in taken:
            self._enter(device)

    def _stand(self, ask: Ask, node: int, taken: Taken) -> None:
        room = self.rooms[node]
        room.cpu -= ask.cpu
        room.memory -= ask.memory
        room.pods -= 1
        room.changes += 1
        if ask.odd:
            room.usage.add(ask.demand.pod)
        ask.node, ask.taken = node, taken
        for device, part in taken:
            device.parts.append(part)
            device.state = device.pool.full if device.reserved else device.pool.restored(device)

    # ----------------------------------------------------------------------------------------- one partition

    def _place_single(self, ask: Ask, group: int, reach: Reach) -> bool:
        resource = ask.single
        assert resource is not None
        if reach <= Reach.CHANGED and self._place_ready(ask, resource, self.groups[group].ready.get(resource, [])):
            return True
        for pool in self.groups[group].serving(resource):
            if pool.reach > reach:
                return False
            device = self._search(pool, resource, ask, reach)
            fitting = None if device is None else pool.fit(device.state, resource)
            if device is not None and fitting is not None:
                self._commit(ask, device.node, [(device, fitting.part)])
                return True
        return False

    def _place_ready(self, ask: Ask, resource: str, heap: list[tuple[int, int, int]]) -> bool:
        """Take an idle partition on the node that has most CPU."""
        aside: list[tuple[int, int, int]] = []
        found: tuple[Device, Part] | None = None
        while heap and found is None and len(aside) < _PROBES:
            free, node, gpu = heap[0]
            if -free != self.rooms[node].cpu:
                heapreplace(heap, (-self.rooms[node].cpu, node, gpu))
                continue
            if -free < ask.cpu:
                break
            device = self._gpus[node, gpu]
            fitting = device.pool.fit_ready(device, device.state, resource, 0)
            if fitting is None:
                heappop(heap)
            elif self.fits(ask, node):
                found = (device, fitting.part)
            else:
                aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        if found is not None:
            self._commit(ask, found[0].node, [found])
        return found is not None

    def _search(self, pool: Pool, resource: str, ask: Ask, reach: Reach) -> Device | None:
        order = pool.order(resource)
        position = 0
        while position < len(order):
            key = order[position].key
            if reach < Reach.NEW and key & 3 != Tier.CHANGED_ANYWAY:
                position += 1
                continue
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

    def _place_many(self, ask: Ask, group: int, reach: Reach) -> bool:
        """The partitions of one pod come from one node, and from as many of its GPUs as need be."""
        queue = self._queues.queue(ask.demand.wants, group, reach)
        missed = self._missed.setdefault((ask.demand.wants, reach), {})
        passed: list[int] = []
        best: tuple[int, int, list[tuple[Device, Fitting]]] | None = None
        position = compared = 0
        while position < len(queue) and compared < _COMPARED and (best is None or (best[0] and self._comparisons > 0)):
            node = queue[position]
            position += 1
            if missed.get(node) == self.rooms[node].changes:
                continue
            if not self.fits(ask, node):
                passed.append(node)
                continue
            found = on_node(self, ask, node, reach)
            if found is None:
                missed[node] = self.rooms[node].changes
            else:
                passed.append(node)
                compared += 1
                self._comparisons -= 1
                changes = len(
                    {device.gpu for device, fitting in found if not fitting.part.ready and not device.changed}
                )
                if best is None or changes < best[0]:
                    best = changes, node, found
        # Nodes without the partitions will not have them until something is taken off: do not look at them again.
        queue[:position] = passed
        if best is None:
            return False
        _, node, chosen = best
        self._commit(ask, node, [(device, fitting.part) for device, fitting in chosen])
        return True

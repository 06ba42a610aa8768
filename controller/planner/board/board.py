"""The mutable board of one pass: puts pending pods on nodes and takes them off again.

It keeps the capacity of nodes and the states of devices consistent with the assignments, and finds the best place for
one pod at a time; which pods to try, and in which order, is decided by its callers. Never reads a view of the cluster.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial
from heapq import heappush
from itertools import islice
from typing import Protocol

from controller.model.capacity import NOTHING, Capacity
from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment, Taken
from controller.planner.board.devices import Device, Reach
from controller.planner.board.leftovers import Leftovers
from controller.planner.board.nodes import Group, NodeCapacity
from controller.planner.board.one_partition import OnePartition
from controller.planner.board.rooms import Rooms
from controller.planner.board.several_partitions import Found, may_give, on_node, taken_of
from controller.planner.effort import Effort

_COMPARED = 12
"""Of so many nodes with room a pod with several partitions gets the one that loses least by it."""


class Filters(Protocol):
    """What decides where a constrained pod may go; see `placement.constrained`."""

    def place_one(self, assignment: Assignment, reach: Reach, within: Collection[int] | None = None) -> bool:
        """Place it on some node (default: of its groups) that the filters accept."""

    def domains(self, assignment: Assignment) -> Sequence[Collection[int]]:
        """Nodes, by the topology in which the pod must stay with pods like itself; none where it need not."""

    def accepts(self, assignment: Assignment, node: int) -> bool:
        """Whether the filters accept the node, with every pod where it is now."""


class Board:
    trials = 20_000
    """Of packing, that are left in this pass to make room in a group for pods of others: some tenths of a second."""

    def __init__(self, nodes: Sequence[NodeCapacity], group_of: Sequence[int], sizes: Sequence[str]):
        """`sizes`: all resources, the hardest to place first."""
        self.nodes = nodes
        self.sizes = list(sizes)
        self.rank = {resource: position for position, resource in enumerate(sizes)}
        self.filters: Filters | None = None
        """Asked for every constrained pod, whatever places it."""
        self.moves = self.work = 0
        """How often a pod came to a node or left one, and how often a place was searched."""
        self.effort = Effort()
        self._hardness: dict[Wants, tuple[int, int]] = {}
        self._no_place: dict[Hashable, dict[int, tuple[Capacity, Leftovers]]] = {}
        """By partitions, reach and names, what found no place in a group: nor does what needs more, or more than the
        nodes that may have the partitions have left. 0: it has none of them."""
        self.group(group_of)

    def group(self, group_of: Sequence[int]) -> None:
        """Before anything is placed: put the nodes into these groups (-1: none), without the devices of before."""
        self.group_of = group_of
        self.groups = [Group() for _ in range(max(group_of, default=-1) + 1)]
        for node, group in enumerate(group_of):
            if group >= 0:
                self.groups[group].nodes.append(node)
        self.devices: list[list[Device]] = [[] for _ in self.nodes]
        self._places = list(zip(self.nodes, self.devices, strict=True))
        self.rooms = Rooms(self.nodes, self.groups, self.devices, self.rank)

    def add(self, device: Device) -> None:
        """Its pool must be in the group of its node."""
        device.position = len(self.devices[device.node])
        self.devices[device.node].append(device)
        device.pool.devices.append(device)
        device.state = device.base
        self._enter(device)

    def fits(self, assignment: Assignment, node: int) -> bool:
        """Everything but partitions."""
        return self.nodes[node].fits(assignment.demand)

    def hardness(self, assignment: Assignment) -> tuple[int, int, int, int, int]:
        """Sort key: what was left out before, then hardest partitions, several before one, much CPU before little."""
        wants, needs = assignment.wants, assignment.needs
        known = self._hardness.get(wants)
        if known is None:
            known = self._hardness[wants] = min(self.rank[name] for name, _ in wants), -sum(count for _, count in wants)
        return (-assignment.left_out, *known, -needs.cpu_milli, -needs.memory_bytes)

    def free_in(self, *groups: int) -> Capacity:
        """CPU, memory and pods of these groups' nodes together; a node that lacks some takes none from the others."""
        free = [self.nodes[node].free for group in groups for node in self.groups[group].nodes]
        return Capacity(
            cpu_milli=sum(max(0, one.cpu_milli) for one in free),
            memory_bytes=sum(max(0, one.memory_bytes) for one in free),
            pods=sum(max(0, one.pods) for one in free),
        )

    def demand(self, resources: Iterable[str], *groups: int) -> None:
        """What is still to be placed, in these groups or in all: free space is worth what it can make of that."""
        self.rooms.renew()
        for group in groups or range(len(self.groups)):
            for pool in self.groups[group].pools:
                pool.demand(resources)

    def has_partitions(self, assignment: Assignment, node: int) -> bool:
        """Partitions alone: whether the node's devices could give them now."""
        return on_node(self.devices[node], assignment.demand, self.rank, Reach.NEW) is not None

    def place(
        self,
        assignment: Assignment,
        groups: Iterable[int] | None = None,
        *,
        reach: Reach = Reach.NEW,
        within: Collection[int] | None = None,
    ) -> bool:
        """Assign the pod to the best node of these groups (default: all that it may use).

        For a constrained pod its filters choose, among all of its groups, or among the nodes `within` alone.
        """
        if assignment.constrained and self.filters is not None:
            self.work += 1
            return self.filters.place_one(assignment, reach, within)
        wants, needs, ports = assignment.wants, assignment.needs, assignment.demand.host_ports
        failed = self._no_place.setdefault((wants, tuple([name for name, _ in needs.other]), ports, reach), {})
        for group in assignment.groups if groups is None else groups:
            known = failed.get(group)
            if known is not None and (needs.fits(known[0]) or not known[1].may_hold(needs)):
                continue
            self.work += 1
            if (taken := self._find(assignment, group, reach)) is not None:
                self.put(assignment, taken[0][0].node, taken)
                return True
            # Capacity only shrinks until something is taken off, so whatever failed here goes on failing.
            least = needs if self.groups[group].gives(wants, reach) else NOTHING
            failed[group] = least, Leftovers(partial(self._free_where, group, wants, reach))
            self.effort.looks += len(self.groups[group].nodes)
        return False

    def place_on(self, assignment: Assignment, node: int, *, reach: Reach = Reach.NEW) -> bool:
        """Assign the pod to this node, if it has room, and the filters accept a constrained one."""
        found = self.found_among(self.devices[node], assignment, node, reach)
        filters = self.filters if assignment.constrained else None
        if found is None or (filters is not None and not filters.accepts(assignment, node)):
            return False
        self.put(assignment, node, taken_of(found))
        return True

    def found_among(self, devices: Sequence[Device], assignment: Assignment, node: int, reach: Reach) -> Found | None:
        """What of these devices of a node the pod would take, whatever its filters answer; None: it has no room."""
        if not self.nodes[node].fits(assignment.demand):
            return None
        return on_node(devices, assignment.demand, self.rank, reach)

    def put(self, assignment: Assignment, node: int, taken: Taken) -> None:
        """On devices that have space for it: found now, or where it was before."""
        self._assign(assignment, node, taken)
        for device, _ in taken:
            self._enter(device)

    def _free_where(self, group: int, wants: Wants, reach: Reach) -> list[Capacity]:
        """Of nodes that may have these partitions."""
        return [self.nodes[n].free for n in self.groups[group].nodes if may_give(self.devices[n], wants, reach)]

    def _find(self, assignment: Assignment, group: int, reach: Reach) -> Taken | None:
        demand = assignment.demand
        if demand.single is not None:
            search = OnePartition(demand.single, demand, self._places, set())
            one = search.find(self.groups[group], reach)
            if one is not None or not search.lacking:
                return None if one is None else [one]
        some = islice(self.rooms.offers(demand, (group,), reach), _COMPARED)
        best = min(some, key=lambda offer: offer.cost, default=None)
        return None if best is None else taken_of(best.found)

    def take_off(self, assignment: Assignment) -> None:
        self.settle((self.lift(assignment)[0],))

    def clear(self, assignments: Iterable[Assignment]) -> None:
        """Take off all of them that are placed."""
        self.restore(assignments, ())

    def lift(self, assignment: Assignment) -> tuple[int, Taken]:
        """Take it off for a trial: only `place_on` may follow, until it is put back or its node is settled."""
        node, taken = assignment.node, assignment.taken
        self.nodes[node].give_back(assignment.demand)
        self.moves += 1
        for device, part in taken:
            device.parts.remove(part)
            device.restore()
        assignment.node, assignment.taken = -1, []
        return node, taken

    def settle(self, nodes: Iterable[int]) -> None:
        """What was lifted from these nodes is free for every pod."""
        # They have more CPU now than the entries of their devices show, and would be passed over.
        for node in nodes:
            for device in self.devices[node]:
                self._enter(device)
        self._no_place.clear()
        self.rooms.renew()

    def restore(self, now: Iterable[Assignment], before: Iterable[tuple[Assignment, int, Taken]]) -> None:
        """Take off those that are placed now, and put back those that were before: `clear` and `put` in one."""
        nodes = {self.lift(one)[0] for one in now if one.placed}
        for assignment, node, taken in before:
            self._assign(assignment, node, taken)
            nodes.add(node)
        self.settle(nodes)

    def drain(self, assignment: Assignment, device: Device) -> None:
        """Keep a device, and what the pod needs of its node, from every pod that is placed after this."""
        self.nodes[device.node].take(assignment.demand)
        device.drained = True
        device.restore()
        self._enter(device)

    def end_drain(self, assignment: Assignment, device: Device) -> None:
        """It is free for every pod."""
        self.nodes[device.node].give_back(assignment.demand)
        device.drained = False
        device.restore()
        self.settle((device.node,))

    def _assign(self, assignment: Assignment, node: int, taken: Taken) -> None:
        self.moves += 1
        self.nodes[node].take(assignment.demand)
        assignment.node, assignment.taken = node, taken
        for device, part in taken:
            device.parts.append(part)
            device.restore()

    def _enter(self, device: Device) -> None:
        """Put a device into the bucket of its state, with its node's present CPU."""
        pool, free = device.pool, -self.nodes[device.node].free.cpu_milli
        device.key = pool.key_of(device)
        if device.key not in pool.heaps:
            pool.enter(device.key)
        heappush(pool.heaps[device.key], (free, device.node, device.position))
        if device.ready:
            ready = self.groups[self.group_of[device.node]].ready
            for resource in device.ready:
                heappush(ready.setdefault(resource, []), (free, device.node, device.position))

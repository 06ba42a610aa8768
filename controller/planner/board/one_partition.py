"""Finds the best device of a group for a pod that requests one partition.

Takes the group, the capacity of the nodes and a demand; returns the device and what it gives, or None. An idle
partition comes before a new one, then the device that loses least by it, then the node with most free CPU. Nodes that
have the partition, but too little of something else than CPU, are probed in small numbers, and then it gives up. Heaps
are cleaned on the way: an entry is right when it shows its node's present CPU. Never assigns anything.
"""

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace, merge
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from controller.model.demand import Demand
from controller.planner.board.devices import Device, Part, Pool, Reach
from controller.planner.board.nodes import Group, NodeCapacity

_PROBES = 32
"""How many GPUs in one bucket, and nodes in all, with enough CPU but too little of something else are probed."""

Found = tuple[Device, Part]


class OnePartition(NamedTuple):
    """What is searched for, and where: each node with its devices."""

    resource: str
    demand: Demand
    places: Sequence[tuple[NodeCapacity, Sequence[Device]]]
    lacking: set[int]
    """Nodes that were found to have it, but too little of something else than CPU."""

    def find(self, group: Group, reach: Reach) -> Found | None:
        """None: no node has it, unless some of them are `lacking`, of which further ones were not probed."""
        found = self._most_cpu(group.ready.get(self.resource, [])) if reach < Reach.NEW else None
        if found is not None:
            return found
        for pools in group.serving(self.resource):
            if pools[0].reach > reach:
                return None
            found = self._least_loss(pools)
            if found is not None:
                return found
        return None

    def _least_loss(self, pools: Sequence[Pool]) -> Found | None:
        """Bucket by bucket of all pools."""
        # Of copies: a bucket that turns out to be empty leaves its order.
        orders = [zip(pool.order(self.resource)[:], repeat(pool)) for pool in pools]
        for entry, pool in merge(*orders, key=itemgetter(0)):
            heap = pool.heaps[entry.key]
            found = self._most_cpu(heap, entry.key)
            if not heap:
                pool.leave(entry.key)
            if found is not None or len(self.lacking) > _PROBES:
                return found
        return None

    def _most_cpu(self, heap: list[tuple[int, int, int]], key: int | None = None) -> Found | None:
        """On the node that has most CPU, if the pod fits there: from a bucket, or (`key` is None) an idle partition."""
        aside: list[tuple[int, int, int]] = []
        found: Found | None = None
        while heap and found is None and len(aside) < _PROBES:
            free, node, position = heap[0]
            capacity, devices = self.places[node]
            device = devices[position]
            if key is None:
                fitting = device.pool.fit_ready(device, device.state, self.resource, 0)
            else:
                fitting = device.pool.fit(device.state, self.resource) if device.key == key else None
            if fitting is None:
                heappop(heap)
            elif -free != capacity.free.cpu_milli:
                heapreplace(heap, (-capacity.free.cpu_milli, node, position))
            elif 0 < self.demand.needs.cpu_milli > -free:
                break
            elif node not in self.lacking and capacity.fits(self.demand):
                found = (device, fitting.part)
            else:
                self.lacking.add(node)
                aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        return found

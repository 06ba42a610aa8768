"""Finds the best device of a group for a pod that requests one partition.

Takes the group, the capacity of the nodes and a demand; returns the device and what it gives, or None. An idle
partition comes before a new one, then the device that loses least by it, then the node with most free CPU. Heaps are
cleaned on the way: an entry is right when it shows its node's present CPU. Never assigns anything.
"""

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace, merge
from itertools import repeat
from operator import itemgetter

from controller.model.demand import Demand
from controller.planner.board.devices import Device, Part, Pool, Reach
from controller.planner.board.nodes import Group, NodeCapacity

_PROBES = 32
"""How many nodes with enough CPU but too little of something else are probed in one bucket."""

Found = tuple[Device, Part]
Places = Sequence[tuple[NodeCapacity, Sequence[Device]]]
"""Each node with its devices."""


def find_one_partition(group: Group, places: Places, demand: Demand, resource: str, reach: Reach) -> Found | None:
    ready = group.ready.get(resource)
    if ready and reach < Reach.NEW:
        found = _most_cpu(ready, places, demand, resource)
        if found is not None:
            return found
    for pools in group.serving(resource):
        if pools[0].reach > reach:
            return None
        found = _least_loss(pools, places, demand, resource)
        if found is not None:
            return found
    return None


def _least_loss(pools: Sequence[Pool], places: Places, demand: Demand, resource: str) -> Found | None:
    """Bucket by bucket of all pools."""
    # Of copies: a bucket that turns out to be empty leaves its order.
    for entry, pool in merge(*(zip(pool.order(resource)[:], repeat(pool)) for pool in pools), key=itemgetter(0)):
        heap = pool.heaps[entry.key]
        found = _most_cpu(heap, places, demand, resource, entry.key)
        if not heap:
            pool.leave(entry.key)
        if found is not None:
            return found
    return None


def _most_cpu(
    heap: list[tuple[int, int, int]], places: Places, demand: Demand, resource: str, key: int | None = None
) -> Found | None:
    """On the node that has most CPU, if the pod fits there: from a bucket, or (`key` is None) an idle partition."""
    aside: list[tuple[int, int, int]] = []
    found: Found | None = None
    while heap and found is None and len(aside) < _PROBES:
        free, node, position = heap[0]
        capacity, devices = places[node]
        device = devices[position]
        if key is None:
            fitting = device.pool.fit_ready(device, device.state, resource, 0)
        else:
            fitting = device.pool.fit(device.state, resource) if device.key == key else None
        if fitting is None:
            heappop(heap)
        elif -free != capacity.free.cpu_milli:
            heapreplace(heap, (-capacity.free.cpu_milli, node, position))
        elif 0 < demand.needs.cpu_milli > -free:
            break
        elif capacity.fits(demand):
            found = (device, fitting.part)
        else:
            aside.append(heappop(heap))
    for entry in aside:
        heappush(heap, entry)
    return found

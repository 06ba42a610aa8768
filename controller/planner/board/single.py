"""Finds the best device of a group for a pod that requests one partition.

Takes the group, the capacity of the nodes and a demand; returns the device and what it gives, or None. An idle
partition comes before a new one, then the device that loses least by it, then the node with most free CPU. Heaps are
cleaned on the way: an entry is right when it shows its node's present CPU. Never assigns anything.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from controller.model.demand import Demand
from controller.planner.board.devices import Device, Entry, Part, Pool, Reach
from controller.planner.board.nodes import Group, NodeCapacity

_PROBES = 32
"""How many nodes with enough CPU but too little of something else are probed in one bucket."""

Nodes = Sequence[NodeCapacity]
Heap = list[tuple[int, int, int]]


def find_single(group: Group, nodes: Nodes, demand: Demand, resource: str, reach: Reach) -> tuple[Device, Part] | None:
    ready = group.ready.get(resource)
    if ready and reach < Reach.NEW:
        found = _idle_partition(group, ready, nodes, demand, resource)
        if found is not None:
            return found
    for pools in group.serving(resource):
        if pools[0].reach > reach:
            return None
        device = _least_loss(pools, nodes, demand, resource)
        fitting = None if device is None else device.pool.fit(device.state, resource)
        if device is not None and fitting is not None:
            return device, fitting.part
    return None


def _idle_partition(
    group: Group, heap: Heap, nodes: Nodes, demand: Demand, resource: str
) -> tuple[Device, Part] | None:
    """On the node that has most CPU."""
    aside: Heap = []
    found: tuple[Device, Part] | None = None
    while heap and found is None and len(aside) < _PROBES:
        free, node, gpu = heap[0]
        if -free != nodes[node].free.cpu_milli:
            heapreplace(heap, (-nodes[node].free.cpu_milli, node, gpu))
            continue
        if 0 < demand.needs.cpu_milli > -free:
            break
        device = group.gpus[node, gpu]
        fitting = device.pool.fit_ready(device, device.state, resource, 0)
        if fitting is None:
            heappop(heap)
        elif nodes[node].fits(demand):
            found = (device, fitting.part)
        else:
            aside.append(heappop(heap))
    for entry in aside:
        heappush(heap, entry)
    return found


def _least_loss(pools: Sequence[Pool], nodes: Nodes, demand: Demand, resource: str) -> Device | None:
    """Bucket by bucket of all pools."""
    orders = [pool.order(resource) for pool in pools]
    positions = [0] * len(pools)
    while True:
        best: tuple[Entry, int] | None = None
        for number, order in enumerate(orders):
            position = positions[number]
            if position < len(order) and (best is None or order[position] < best[0]):
                best = order[position], number
        if best is None:
            return None
        key, number = best[0].key, best[1]
        device = _most_cpu(pools[number], key, nodes, demand)
        if device is not None:
            return device
        if key in pools[number].heaps:
            positions[number] += 1


def _most_cpu(pool: Pool, key: int, nodes: Nodes, demand: Demand) -> Device | None:
    """The device of a bucket whose node has most CPU, if the pod fits there."""
    heap = pool.heaps[key]
    aside: Heap = []
    found = None
    while heap and len(aside) < _PROBES:
        free, node, position = heap[0]
        device = pool.devices[position]
        if device.key != key:
            heappop(heap)
        elif -free != nodes[node].free.cpu_milli:
            heapreplace(heap, (-nodes[node].free.cpu_milli, node, position))
        elif 0 < demand.needs.cpu_milli > -free:
            break
        elif nodes[node].fits(demand):
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

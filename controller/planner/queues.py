"""Which nodes to try for an ask that needs several partitions, and in which order: the fullest first.

In go the devices of the board as they are added, out come lists of node numbers: all nodes of a group that may have the
partitions within reach, most others left out. Whether a node really has them, and everything else that the ask needs,
is for the board to see; it drops from a list what it has looked at in vain, until something is taken off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controller.model.demand import Wants
from controller.planner.asks import Group
from controller.planner.devices import Device, Reach, Tier


class Queues:
    def __init__(self, groups: Sequence[Group], devices: Sequence[Sequence[Device]]) -> None:
        """`devices` are those of each node; more may come."""
        self._groups = groups
        self._devices = devices
        self._queues: dict[tuple[Wants, int, Reach], list[int]] = {}
        self._orders: dict[int, list[int]] = {}
        self._ready: dict[str, Counter[int]] = {}
        """Per resource and node, how many partitions needed no cut at first."""
        self._once_ready: dict[tuple[Wants, int], list[int]] = {}

    def add(self, device: Device) -> None:
        """One that has anything without a cut."""
        for resource, parts in device.ready.items():
            self._ready.setdefault(resource, Counter())[device.node] += len(parts)
        if device.gpu < 0:
            for resource in device.pool.serves:
                self._ready.setdefault(resource, Counter())[device.node] += device.base

    def queue(self, wants: Wants, group: int, reach: Reach) -> list[int]:
        """May be shortened: it is the same list until `renew`, but for CHANGED."""
        if reach is Reach.CHANGED:
            return self._with_changed(wants, group)
        queue = self._queues.get((wants, group, reach))
        if queue is None:
            nodes = self._fullest_first(group) if reach is Reach.NEW else self._with_ready(wants, group)
            queue = self._queues[wants, group, reach] = list(nodes)
        return queue

    def renew(self) -> None:
        """Something was taken off the board, so that nodes which had nothing may have something now."""
        self._queues.clear()

    def _with_ready(self, wants: Wants, group: int) -> list[int]:
        """Nodes that had enough that needs no cut before this pass began to give it away."""
        nodes = self._once_ready.get((wants, group))
        if nodes is None:
            nodes = self._fullest_first(group)
            for resource, count in wants:
                ready = self._ready.get(resource, Counter())
                nodes = [node for node in nodes if ready.get(node, 0) >= count]
            self._once_ready[wants, group] = nodes
        return nodes

    def _with_changed(self, wants: Wants, group: int) -> list[int]:
        """Those nodes, and those where a GPU that changes anyway has room for one of the partitions."""
        nodes = set(self._with_ready(wants, group))
        for resource, _ in wants:
            for pool in self._groups[group].serving(resource):
                for key in [entry.key for entry in pool.order(resource) if entry.key & 3 == Tier.CHANGED_ANYWAY]:
                    nodes.update(node for _, node, position in pool.heaps[key] if pool.devices[position].key == key)
        return [node for node in self._fullest_first(group) if node in nodes]

    def _fullest_first(self, group: int) -> list[int]:
        """So that empty nodes stay whole. The order is not renewed for every ask: it is a preference."""
        order = self._orders.get(group)
        if order is None:
            load = {node: sum([len(one.parts) for one in self._devices[node]]) for node in self._groups[group].nodes}
            order = self._orders[group] = sorted(load, key=lambda node: (-load[node], node))
        return order

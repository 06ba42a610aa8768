"""Finds which devices of a node give a pod its partitions, and which nodes to try for several partitions.

`on_node` takes what the board knows of devices, a demand and a node, and returns devices with what each gives, or None.
`NodeLists` takes devices as the board adds them, and returns the nodes of a group that may have the partitions within
reach, the fullest first, most others left out; the caller drops from a list what it has tried in vain, until something
is taken off. Never takes a partition, never checks CPU or memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from controller.model.demand import Demand, Wants
from controller.planner.board.devices import Device, Entry, Fitting, Reach, Tier
from controller.planner.board.nodes import Group, NodeCapacity

Found = list[tuple[Device, Fitting]]


class Devices(Protocol):
    """The part of the board that is read here."""

    @property
    def nodes(self) -> Sequence[NodeCapacity]: ...

    @property
    def devices(self) -> Sequence[Sequence[Device]]:
        """Per node."""

    @property
    def rank(self) -> Mapping[str, int]:
        """Resources, the hardest to place first."""


def on_node(board: Devices, demand: Demand, node: int, reach: Reach) -> Found | None:
    """Choose devices for all partitions of a pod, hardest first, each where it costs least."""
    if demand.single is not None:
        best = _best_device(board, node, demand.single, {}, (), reach=reach)
        return None if best is None else [best]
    states: dict[int, int] = {}
    found: Found = []
    for resource, count in sorted(demand.wants, key=lambda want: board.rank[want[0]]):
        for _ in range(count):
            best = _best_device(board, node, resource, states, found, reach=reach)
            if best is None:
                return None
            states[id(best[0])] = best[1].after
            found.append(best)
    return found


def _best_device(
    board: Devices,
    node: int,
    resource: str,
    states: Mapping[int, int],
    found: Sequence[tuple[Device, Fitting]],
    *,
    reach: Reach,
) -> tuple[Device, Fitting] | None:
    """`states` and `found` are what the same pod takes already."""
    best: tuple[Device, Fitting] | None = None
    least: tuple[bool, Entry] | None = None
    for device in board.devices[node]:
        pool = device.pool
        if resource not in pool.serves:
            continue
        state = states.get(id(device), device.state) if states else device.state
        if resource in device.ready:
            taken = sum(one is device and fitting.part.ready for one, fitting in found) if found else 0
            fitting = pool.fit_ready(device, state, resource, taken)
            if fitting is not None:
                cost = (False, pool.rate(fitting, device.key))
                if least is None or cost < least:
                    least, best = cost, (device, fitting)
        if pool.reach <= reach and (reach is Reach.NEW or device.key & 3 == Tier.CHANGED_ANYWAY):
            fitting = pool.fit(state, resource)
            if fitting is not None:
                cost = (not fitting.part.ready, pool.rate(fitting, device.key))
                if least is None or cost < least:
                    least, best = cost, (device, fitting)
    return best


class NodeLists:
    def __init__(self, groups: Sequence[Group], devices: Sequence[Sequence[Device]]) -> None:
        """`devices` are those of each node; more may come."""
        self._groups = groups
        self._devices = devices
        self._lists: dict[tuple[Wants, int, Reach], list[int]] = {}
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

    def ready(self, resource: str) -> Mapping[int, int]:
        """How many partitions of a resource needed no cut at first, per node that had any."""
        return self._ready.get(resource, {})

    def nodes(self, wants: Wants, group: int, reach: Reach) -> list[int]:
        """May be shortened: it is the same list until `renew`, except for CHANGED."""
        if reach is Reach.CHANGED:
            return self._with_changed(wants, group)
        found = self._lists.get((wants, group, reach))
        if found is None:
            nodes = self._fullest_first(group) if reach is Reach.NEW else self._with_ready(wants, group)
            found = self._lists[wants, group, reach] = list(nodes)
        return found

    def renew(self) -> None:
        """Something was taken off the board, so that nodes which had nothing may have something now."""
        self._lists.clear()

    def _with_ready(self, wants: Wants, group: int) -> list[int]:
        """Nodes that had enough that needs no cut before this pass began to give it away."""
        nodes = self._once_ready.get((wants, group))
        if nodes is None:
            nodes = self._fullest_first(group)
            for resource, count in wants:
                ready = self.ready(resource)
                nodes = [node for node in nodes if ready.get(node, 0) >= count]
            self._once_ready[wants, group] = nodes
        return nodes

    def _with_changed(self, wants: Wants, group: int) -> list[int]:
        """Those nodes, and those where a GPU that changes anyway has space for one of the partitions."""
        nodes = set(self._with_ready(wants, group))
        for resource, _ in wants:
            for pool in self._groups[group].serving(resource):
                for key in [entry.key for entry in pool.order(resource) if entry.key & 3 == Tier.CHANGED_ANYWAY]:
                    nodes.update(node for _, node, position in pool.heaps[key] if pool.devices[position].key == key)
        return [node for node in self._fullest_first(group) if node in nodes]

    def _fullest_first(self, group: int) -> list[int]:
        """So that empty nodes stay whole. The order is not renewed for every pod: it is a preference."""
        order = self._orders.get(group)
        if order is None:
            load = {node: sum([len(one.parts) for one in self._devices[node]]) for node in self._groups[group].nodes}
            order = self._orders[group] = sorted(load, key=lambda node: (-load[node], node))
        return order

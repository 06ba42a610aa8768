"""Finds the devices of a node that give a pod its partitions, and the best node for a pod that requests several.

The partitions of one pod come from one node, and from as many of its GPUs as need be. Nodes of a group that may have
them within reach are tried, the fullest first; those that lacked them are left out until something on them changes. Of
the first nodes that have them, the one that loses least by it is chosen, or the one where fewest GPUs change where all
pods fit. Never assigns anything.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain

from controller.model.demand import Demand, Wants
from controller.planner.board.assignment import Taken
from controller.planner.board.devices import Device, Entry, Fitting, Reach, Tier
from controller.planner.board.nodes import Group, NodeCapacity

_COMPARED, _COMPARISONS = 12, 2_000
"""How many nodes are compared for one pod with several partitions, and how many in one pass."""

Found = list[tuple[Device, Fitting]]


def on_node(devices: Sequence[Device], demand: Demand, rank: Mapping[str, int], reach: Reach) -> Found | None:
    """Choose devices of a node for all partitions of a pod, hardest first by `rank`, each where it costs least."""
    if demand.single is not None:
        best = _best_device(devices, demand.single, {}, (), reach=reach)
        return None if best is None else [best]
    if not all(_are_enough(devices, *want) for want in demand.wants):
        return None
    found = _one_by_one(devices, demand, rank, reach=reach)
    if found is None and reach is Reach.NEW and any(device.ready and device.pool.placed for device in devices):
        return _one_by_one(devices, demand, rank, reach=reach, keep=False)  # idle partitions may lie in the way
    return found


def _are_enough(devices: Sequence[Device], resource: str, count: int) -> bool:
    """Whether there could be as many, if nothing else were requested: quick, since pods may request hundreds."""
    for device in devices:
        if count > 0 and resource in device.pool.serves:
            count -= device.pool.most(device.state, resource)
    return count <= 0


def _one_by_one(
    devices: Sequence[Device], demand: Demand, rank: Mapping[str, int], *, reach: Reach, keep: bool = True
) -> Found | None:
    states: dict[int, int] = {}
    found: Found = []
    for resource, count in sorted(demand.wants, key=lambda want: rank[want[0]]):
        for _ in range(count):
            best = _best_device(devices, resource, states, found, reach=reach, keep=keep)
            if best is None:
                return None
            states[id(best[0])] = best[1].after
            found.append(best)
    return found


def _best_device(
    devices: Sequence[Device],
    resource: str,
    states: Mapping[int, int],
    found: Sequence[tuple[Device, Fitting]],
    *,
    reach: Reach,
    keep: bool = True,
) -> tuple[Device, Fitting] | None:
    """`states` and `found` are what the same pod takes already. `keep`: of GPUs that may be cut, what is idle first."""
    best: tuple[Device, Fitting] | None = None
    least: tuple[bool, Entry] | None = None
    for device in devices:
        pool = device.pool
        if resource not in pool.serves:
            continue
        state = states.get(id(device), device.state) if states else device.state
        if keep and resource in device.ready:
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


class SeveralFinder:
    """Made once per pass."""

    def __init__(
        self,
        nodes: Sequence[NodeCapacity],
        groups: Sequence[Group],
        devices: Sequence[Sequence[Device]],
        rank: Mapping[str, int],
    ) -> None:
        """`devices` are those of each node, more may come; `rank`: resources, the hardest to place first."""
        self._nodes, self._groups, self._devices, self._rank = nodes, groups, devices, rank
        self._lists: dict[tuple[Wants, int, Reach], list[int]] = {}
        self._orders: dict[int, list[int]] = {}
        self._ready: dict[str, Counter[int]] = {}
        """Per resource and node, how many partitions needed no cut at first."""
        self._once_ready: dict[tuple[Wants, int], list[int]] = {}
        self._missed: dict[Hashable, dict[int, int]] = {}
        """Per partitions and reach: nodes that lacked them, after how many changes of the node."""
        self._comparisons = _COMPARISONS

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

    def renew(self) -> None:
        """Something was taken off the board, so that nodes which had nothing may have something now."""
        self._lists.clear()

    def find(self, demand: Demand, group: int, reach: Reach) -> Found | None:
        nodes = self._candidates(demand.wants, group, reach)
        missed = self._missed.setdefault((demand.wants, reach), {})
        passed: list[int] = []
        best: tuple[tuple[int, int], Found] | None = None
        position = compared = 0
        while position < len(nodes) and compared < _COMPARED and (best is None or self._comparisons > 0):
            node = nodes[position]
            position += 1
            capacity = self._nodes[node]
            if missed.get(node) == capacity.changes:
                continue
            if not capacity.fits(demand):
                passed.append(node)
                continue
            found = on_node(self._devices[node], demand, self._rank, reach)
            if found is None:
                missed[node] = capacity.changes
                continue
            passed.append(node)
            compared += 1
            self._comparisons -= 1
            changes = _gpus_to_change(found)
            loss = sum(fitting.loss for _, fitting in found)
            if best is None or (loss, changes) < best[0]:
                best = (loss, changes), found
            if not changes:
                break
        # Nodes without the partitions will not have them until something is taken off: skip them from now on.
        nodes[:position] = passed
        return None if best is None else best[1]

    def _candidates(self, wants: Wants, group: int, reach: Reach) -> list[int]:
        """The same list until `renew`, except for CHANGED: `find` shortens it."""
        if reach is Reach.CHANGED:
            return self._with_changed(wants, group)
        found = self._lists.get((wants, group, reach))
        if found is None:
            nodes = self._fullest_first(group) if reach is Reach.NEW else self._with_ready(wants, group)
            found = self._lists[wants, group, reach] = list(nodes)
        return found

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
            for pool in chain.from_iterable(self._groups[group].serving(resource)):
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


def taken_of(found: Found) -> Taken:
    """Without what it costs."""
    return [(device, fitting.part) for device, fitting in found]


def _gpus_to_change(found: Found) -> int:
    return len({device.gpu for device, fitting in found if not fitting.part.ready and not device.changed})

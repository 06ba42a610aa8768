"""Nodes on the board: what each has left besides its devices, and the groups in which no pod can tell them apart.

Only the board changes them.
"""

from dataclasses import dataclass, field
from itertools import groupby

from controller.model.capacity import Capacity
from controller.model.demand import Demand, Wants
from controller.planner.board.devices import Pool, Reach
from controller.simulator.usage import Usage


@dataclass(slots=True, kw_only=True, eq=False)
class NodeCapacity:
    """`usage` matters for pods with host ports only."""

    free: Capacity
    usage: Usage
    overheld: frozenset[str] = frozenset()
    """Devices of which bound pods hold more than there is: no further pod fits that requests one."""
    changes: int = 0
    """How many pods came or went: what failed on the node before the next change fails again."""

    withheld: frozenset[str] = frozenset()
    """Partitions of which a drained one is held: the kubelet counts, so that a new one would serve no pod before."""

    def fits(self, demand: Demand) -> bool:
        """Everything but partitions."""
        ports = demand.host_ports
        withheld = self.withheld and any(resource in self.withheld for resource, _ in demand.wants)
        if withheld or (self.overheld and self.lacks(demand)):
            return False
        return self.free.fits(demand.needs) and not (ports and any(self.usage.conflicting(ports)))

    def lacks(self, demand: Demand) -> list[str]:
        """Requested devices that are held by more pods than there are devices."""
        return [name for name, _ in demand.wants if name in self.overheld]

    def take(self, demand: Demand) -> None:
        self.free -= demand.holds
        self.changes += 1
        if demand.pod.host_ports:
            self.usage.add(demand.pod)

    def give_back(self, demand: Demand) -> None:
        self.free += demand.holds
        self.changes += 1
        if demand.pod.host_ports:
            self.usage.remove(demand.pod)


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """Nodes that no pending pod can tell apart by labels and taints."""

    nodes: list[int] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    """By reach: existing stocks first, devices that must be cut last."""
    ready: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Per resource a heap of GPUs with idle partitions: (-free CPU, node, position on the node)."""
    _serving: dict[str, list[list[Pool]]] = field(default_factory=dict)

    def add_pool(self, pool: Pool) -> None:
        self.pools.append(pool)
        self.pools.sort(key=lambda each: each.reach)
        self._serving.clear()

    def gives(self, wants: Wants, reach: Reach = Reach.NEW) -> bool:
        """Whether its devices have room for one of each of these, whatever else their nodes lack."""
        pools, ready = [pool for pool in self.pools if pool.reach <= reach], self.ready if reach < Reach.NEW else {}
        return all(ready.get(name) or any(pool.gives(name) for pool in pools) for name, _ in wants)

    def serving(self, resource: str) -> list[list[Pool]]:
        """In lists of equal reach: which of these comes first is decided by what it loses."""
        found = self._serving.get(resource)
        if found is None:
            pools = [pool for pool in self.pools if resource in pool.serves]
            found = self._serving[resource] = [list(equal) for _, equal in groupby(pools, key=lambda each: each.reach)]
        return found

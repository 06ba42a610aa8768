"""The pieces on the board: asks (pending pods), the rooms of nodes, and groups of nodes.

Values that the board changes and others read. An ask knows where it stands and which parts of which devices it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.model.demand import Demand
from controller.planner.board.devices import Device, Part, Pool
from controller.simulator import Usage

Taken = list[tuple[Device, Part]]


@dataclass(slots=True, kw_only=True, eq=False)
class Ask:
    """One pod on its way to a place. `groups` are the node groups that its selectors and tolerations allow."""

    demand: Demand
    groups: tuple[int, ...]
    cpu: int
    memory: int
    single: str | None
    shape: int
    """Equal for asks that fit exactly where the other fits."""
    odd: bool = False
    """It needs more than CPU, memory and partitions."""
    node: int = -1
    taken: Taken = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class Room:
    """What a node has left beside its devices. `usage` matters for asks with ports or other resources only."""

    cpu: int
    memory: int
    pods: int
    allocatable: Mapping[str, int]
    usage: Usage
    changes: int = 0
    """How many asks came or went: what failed on the node before the next change fails again."""


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """Nodes that no pending pod can tell apart by labels and taints."""

    nodes: list[int] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    """By reach: existing stocks first, devices that must be cut last."""
    ready: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Per resource a heap of GPUs with idle partitions: (-free CPU, node, GPU)."""
    _serving: dict[str, list[Pool]] = field(default_factory=dict)

    def add_pool(self, pool: Pool) -> None:
        self.pools.append(pool)
        self.pools.sort(key=lambda each: each.reach)
        self._serving.clear()

    def serving(self, resource: str) -> list[Pool]:
        found = self._serving.get(resource)
        if found is None:
            found = self._serving[resource] = [pool for pool in self.pools if resource in pool.serves]
        return found

"""Measures what pods cost a group of nodes: shares of its GPUs, CPU and memory, so that unlike things can be added up.

Takes a board, a group and demands, returns shares of the group's free capacity. A GPU share counts compute slices and
memory slices alike for MIG, and memory for MPS. Shares compare pods; they never decide whether something fits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.model.demand import Demand
from controller.planner.board.board import Board
from controller.planner.board.devices import Pool
from controller.planner.board.nodes import NodeCapacity
from controller.planner.board.pools import MigPool

POWER = 4
"""The more of a resource is given away, the more the rest is worth. With 2 and 6 unlike nodes serve fewer pods."""
ResourceShares = tuple[float, float, float]
"""GPU, CPU, memory."""


@dataclass(slots=True, kw_only=True)
class GroupCapacity:
    """The free capacity of one group when it was measured, and the cost of each resource in it."""

    cpu: int
    memory: int
    gpu: dict[str, float]
    nodes: Sequence[NodeCapacity]

    def shares(self, demand: Demand) -> ResourceShares:
        gpu, costs, needs = 0.0, self.gpu, demand.needs
        for resource, count in demand.wants:
            gpu += count * costs.get(resource, 0.0)
        return (gpu, needs.cpu_milli / self.cpu, needs.memory_bytes / self.memory)

    def serves(self, demand: Demand) -> bool:
        """One of its nodes has room for the pod, and some of its GPUs give such partitions."""
        return all(resource in self.gpu for resource, _ in demand.wants) and any(one.fits(demand) for one in self.nodes)


def measure(board: Board, group: int, resources: Iterable[str]) -> GroupCapacity:
    free = board.free_in(group)
    return GroupCapacity(
        cpu=max(1, free.cpu_milli),
        memory=max(1, free.memory_bytes),
        gpu=_gpu_costs(board.groups[group].pools, sorted(resources)),
        nodes=[board.nodes[node] for node in board.groups[group].nodes],
    )


def _gpu_costs(pools: Sequence[Pool], resources: Sequence[str]) -> dict[str, float]:
    """Each resource as a share of what the group's GPUs could still give of that kind; 0 left: not served."""
    most: Counter[str] = Counter()
    for pool in pools:
        states = Counter([device.state for device in pool.devices])
        for resource in pool.serves.intersection(resources):
            most[resource] += sum(count * pool.most(state, resource) for state, count in states.items())
    shares = {resource: 1 / count for resource, count in most.items() if count}
    return shares | _mig_costs([pool for pool in pools if isinstance(pool, MigPool)], resources)


def _mig_costs(pools: Iterable[MigPool], resources: Iterable[str]) -> dict[str, float]:
    """As a share of all models together: a slice of one that has few left costs no more than one of another."""
    counts = [(pool, Counter([device.state for device in pool.devices])) for pool in pools]
    able = [(pool, states) for pool, states in counts if any(map(pool.potential, states))]
    compute = sum(count * pool.potential(state) for pool, states in able for state, count in states.items())
    slots = sum(count * pool.free_slots(state) for pool, states in able for state, count in states.items())
    costs: dict[str, float] = {}
    for pool, _ in able:
        for resource in (name for name in resources if name in pool.serves):
            spec = pool.model.profile(pool.profiles[resource])
            if spec is not None:
                cost = (spec.compute_slices / compute + spec.size / slots) / 2
                costs[resource] = min(cost, costs.get(resource, cost))
    return costs

"""How much the partitions that GPUs can still give may weigh at most, where each resource has a weight.

Takes a pool, the number of its devices in each state, and weights; returns a sum that no way of cutting them exceeds.
For MIG it is the heaviest geometry of each state, for MPS a knapsack over memory. Never smaller than what is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from controller.planner.board.devices import Pool
from controller.planner.board.pools import MigPool, MpsPool, StockPool
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB
from partitioning.resources import WHOLE
from partitioning.states import StateTable, state_table

Weights = Mapping[str, float]
"""What one partition of a resource weighs."""


def capacity_of(pool: Pool, states: Mapping[int, int], weights: Weights) -> float:
    """The most that partitions made from a pool, with so many devices in each state, can weigh."""
    if isinstance(pool, StockPool):
        return sum(count * state * weights.get(name, 0) for name in pool.serves for state, count in states.items())
    if isinstance(pool, MigPool):
        return _mig_capacity(pool, states, weights)
    if isinstance(pool, MpsPool):
        return _mps_capacity(pool, states, weights)
    return 0.0


def _mig_capacity(pool: MigPool, states: Mapping[int, int], weights: Weights) -> float:
    table = state_table(pool.model, frozenset(pool.profiles.values()))
    of_profile = {profile: weights.get(name, 0.0) for name, profile in pool.profiles.items()}
    per_profile = tuple(of_profile[profile] for profile in table.profiles)
    return sum(count * _heaviest(table, state, per_profile) for state, count in states.items())


@lru_cache(maxsize=65536)
def _heaviest(table: StateTable, state: int, per_profile: tuple[float, ...]) -> float:
    """The most that one GPU in this state can weigh. Every group of nodes has GPUs in the same few states."""
    return max(
        sum(number * weight for number, weight in zip(vector, per_profile, strict=True))
        for vector in table.pareto(state)
    )


def _mps_capacity(pool: MpsPool, states: Mapping[int, int], weights: Weights) -> float:
    """By memory where the weights are sizes; by count where a single resource, or whole GPUs, are weighed."""
    if pool.whole and weights.get(WHOLE):
        return weights[WHOLE] * sum(count for state, count in states.items() if pool.uncut(state))
    sizes = [(pool.sizes_mib[name], weight) for name, weight in weights.items() if name in pool.sizes_mib and weight]
    if not sizes:
        return 0.0
    if len(sizes) > 1:
        served = {name: size_mib for name, size_mib in pool.sizes_mib.items() if weights.get(name)}
        gb = {state: _units(pool.free_mib(state), pool.clients(state), served) for state in states}
        worth = _richest([(_slice_gb(size_mib), weight) for size_mib, weight in sizes], max(gb.values(), default=0))
        return sum(count * worth[gb[state]] for state, count in states.items())
    size_mib, weight = sizes[0]
    return sum(
        count * min(pool.free_mib(state) // size_mib, pool.clients(state)) * weight for state, count in states.items()
    )


def _slice_gb(size_mib: int) -> int:
    """The whole GB in a slice's name; its MiB are rounded down."""
    return -(-size_mib * BYTES_PER_MIB // BYTES_PER_GB)


def _units(free_mib: int, clients: int, sizes_mib: Mapping[str, int]) -> int:
    """GB of memory. A slice of N GB takes up to one MiB less: a GPU is credited with all that its slices may save."""
    most = min(clients, max((free_mib // size for size in sizes_mib.values()), default=0))
    return (free_mib + most) * BYTES_PER_MIB // BYTES_PER_GB


def _richest(values: Sequence[tuple[int, float]], most: int) -> list[float]:
    """Per amount up to `most`, the most that slices of these sizes (GB) and values in it are worth: a knapsack."""
    found = [0.0]
    for amount in range(1, most + 1):
        fillings = (found[amount - size] + value for size, value in values if size <= amount)
        found.append(max(found[amount - 1], max(fillings, default=0.0)))
    return found

"""The aggregate bound: how many pods any plan could place at most, without a solver.

Takes the board before anything new is placed and the pending pods, returns a number that no plan exceeds. Each measure
of capacity (CPU, memory, pods, compute and memory slices of MIG, MiB of MPS, count of each resource) holds for all
nodes together: serving the cheapest pods first by it is the most that it allows. The least over all measures is the
bound. Selectors and the borders of nodes are ignored: they only lower what is possible. Never smaller than what some
plan can place.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Pool
from controller.planner.board.pools import MigPool, MpsPool
from partitioning.models import ProfileSpec
from partitioning.states import StateTable, state_table

_SLACK = 1e-9
"""Rounding of floats must never make the bound too small."""
_NOTHING = 1e-6
"""Capacity that stands for none at all."""

Kind = tuple[Wants, int, int]
"""Pods that take the same partitions, CPU and memory."""
Weights = Mapping[str, float]
"""What one partition of a resource weighs."""


def upper_bound(board: Board, assignments: Sequence[Assignment], remarks: list[str]) -> int:
    """A figure that cannot be computed costs no plan: it is the number of pods then, and `remarks` gets the reason."""
    try:
        return _bound(board, assignments) if assignments else 0
    except Exception as error:  # noqa: BLE001  # named in the remark
        remark = f"The bound could not be computed ({type(error).__name__}: {error})."
        if remark not in remarks:
            remarks.append(remark)
        return len(assignments)


def _bound(board: Board, assignments: Sequence[Assignment]) -> int:
    kinds = Counter((one.wants, one.needs.cpu_milli, one.needs.memory_bytes) for one in assignments)
    measures = _measures(board, list(kinds), sorted(set().union(*{one.groups for one in assignments})))
    possible = [
        (number, count)
        for number, count in enumerate(kinds.values())
        if all(costs[number] <= 1 + _SLACK for costs in measures)
    ]
    return min(_most((costs[number], count) for number, count in possible) for costs in measures)


def _most(priced: Iterable[tuple[float, int]]) -> int:
    """How many pods fit into a capacity of 1, cheapest first. Given are, per kind, the cost of one and their number."""
    left, served = 1 + _SLACK, 0
    for cost, count in sorted(priced):
        if cost * count > left:
            return served + int(left / cost)
        left -= cost * count
        served += count
    return served


def _measures(board: Board, kinds: Sequence[Kind], groups: Collection[int]) -> list[list[float]]:
    """Per measure, what each kind takes of all there is: of each resource, as many as there can be if alone."""
    wanted, cpu, memory = zip(*kinds, strict=True)
    free = board.free_in(*groups)
    found_pools = (pool for group in groups for pool in board.groups[group].pools)
    pools = [(pool, Counter([device.state for device in pool.devices])) for pool in found_pools]
    found: list[tuple[Sequence[float], float]] = [
        (cpu, free.cpu_milli),
        (memory, free.memory_bytes),
        ([1] * len(kinds), free.pods),
    ]
    alone = dict.fromkeys(sorted({name for wants in wanted for name, _ in wants}), 0)
    for pool, states in pools:
        for name in pool.serves.intersection(alone):
            alone[name] += sum(count * pool.most(state, name) for state, count in states.items())
    together = [
        (weights, sum(_capacity_of(pool, states, weights) for pool, states in pools))
        for weights in _together([pool for pool, _ in pools])
    ]
    for weights, capacity in (*(({name: 1.0}, count) for name, count in alone.items()), *together):
        found.append(([sum(count * weights.get(name, 0) for name, count in wants) for wants in wanted], capacity))
    return [[amount / (capacity or _NOTHING) for amount in taken] for taken, capacity in found]


def _together(pools: Sequence[Pool]) -> list[Weights]:
    """Slices of MIG by compute and by memory, then memory of MPS."""
    mig = [pool for pool in pools if isinstance(pool, MigPool)]
    mps = {name: float(mib) for pool in pools if isinstance(pool, MpsPool) for name, mib in pool.sizes_mib.items()}
    return [_least(mig, lambda spec: spec.compute_slices), _least(mig, lambda spec: spec.size), mps]


def _least(pools: Sequence[MigPool], measure: Callable[[ProfileSpec], int]) -> Weights:
    """Models differ in what a profile takes; the least keeps the bound valid on all of them."""
    weights: dict[str, float] = {}
    for pool in pools:
        for name, profile in pool.profiles.items():
            if (spec := pool.model.profile(profile)) is not None:
                weights[name] = min(float(measure(spec)), weights.get(name, float("inf")))
    return weights


def _capacity_of(pool: Pool, states: Mapping[int, int], weights: Weights) -> float:
    """The most that partitions made from a pool, with so many devices in each state, can weigh."""
    if isinstance(pool, MpsPool):
        return (
            0.0 if weights.keys().isdisjoint(pool.sizes_mib) else sum(n * pool.free_mib(s) for s, n in states.items())
        )
    if not isinstance(pool, MigPool):
        return sum(count * state * weights.get(name, 0) for name in pool.serves for state, count in states.items())
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

"""An upper bound on how many pods any plan could place, without a solver.

Takes the board before anything new is placed and the pending pods, returns a number that no plan exceeds. Each measure
of capacity (CPU, memory, pods, compute and memory slices of MIG, MiB of MPS, count of each resource) holds for all
nodes together, and so does every weighted sum of measures: serving the cheapest pods first by such a sum is the most
that it allows. The least over a grid of weights is the bound. Selectors and the borders of nodes are ignored: they
only lower what is possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Pool
from controller.planner.board.pools import MigPool, MpsPool, StockPool
from controller.planner.placement.shares import competing
from partitioning.models import ProfileSpec
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB
from partitioning.resources import WHOLE
from partitioning.states import StateTable, state_table

_STEPS = 10
_SLACK = 1e-9
"""Rounding of floats must never make the bound too small."""
_NOTHING = 1e-6
"""Capacity that stands for none at all."""

Weights = Mapping[str, float]
"""What one partition of a resource takes."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Asks that take the same."""

    ask: Ask
    count: int


def upper_bound(board: Board, asks: Sequence[Ask]) -> int:
    """Pods that compete for no GPU with each other are counted apart, which is never more than counting all at once."""
    kinds = competing([pool for group in board.groups for pool in group.pools], asks)
    return sum(_bound(board, [ask for ask in asks if ask.demand.wants[0][0] in kind]) for kind in kinds)


def _bound(board: Board, asks: Sequence[Ask]) -> int:
    kinds = _kinds(asks)
    scarce = [costs for costs in _measures(board, kinds) if _total(kinds, costs) > 1]
    best = len(asks)
    for one, other in combinations_with_replacement(scarce, 2):
        for step in range(_STEPS + 1) if one is not other else (_STEPS,):
            weight = step / _STEPS
            costs = [a * weight + b * (1 - weight) for a, b in zip(one, other, strict=True)]
            best = min(best, _most(kinds, costs))
    return best


def _kinds(asks: Sequence[Ask]) -> list[_Kind]:
    members: dict[Hashable, list[Ask]] = {}
    for ask in asks:
        members.setdefault((ask.demand.wants, ask.cpu, ask.memory), []).append(ask)
    return [_Kind(ask=same[0], count=len(same)) for same in members.values()]


def _total(kinds: Sequence[_Kind], costs: Sequence[float]) -> float:
    return sum(kind.count * cost for kind, cost in zip(kinds, costs, strict=True))


def _most(kinds: Sequence[_Kind], costs: Sequence[float]) -> int:
    """How many asks fit into a capacity of 1, cheapest first."""
    left, served = 1 + _SLACK, 0
    for cost, position in sorted((cost, position) for position, cost in enumerate(costs)):
        count = kinds[position].count
        if cost * count > left:
            return served + int(left / cost)
        left -= cost * count
        served += count
    return served


def _measures(board: Board, kinds: Sequence[_Kind]) -> list[list[float]]:
    """Per measure, what each kind takes of all there is."""
    rooms = [board.rooms[node] for group in board.groups for node in group.nodes]
    found = [
        _relative([kind.ask.cpu for kind in kinds], sum(max(0, room.cpu) for room in rooms)),
        _relative([kind.ask.memory for kind in kinds], sum(max(0, room.memory) for room in rooms)),
        _relative([1 for _ in kinds], sum(max(0, room.pods) for room in rooms)),
    ]
    pools = [
        (pool, Counter([device.state for device in pool.devices])) for group in board.groups for pool in group.pools
    ]
    for weights in _gpu_weights(board, [pool for pool, _ in pools]):
        taken = [sum(count * weights.get(name, 0) for name, count in kind.ask.demand.wants) for kind in kinds]
        found.append(_relative(taken, sum(_capacity(pool, states, weights) for pool, states in pools)))
    return found


def _relative(taken: Sequence[float], capacity: float) -> list[float]:
    return [amount / (capacity or _NOTHING) for amount in taken]


def _gpu_weights(board: Board, pools: Sequence[Pool]) -> list[Weights]:
    """Each resource alone, then slices of MIG by compute and by memory, then memory of MPS."""
    mig = [pool for pool in pools if isinstance(pool, MigPool)]
    mps = {name: float(mib) for pool in pools if isinstance(pool, MpsPool) for name, mib in pool.sizes_mib.items()}
    alone: list[Weights] = [{name: 1.0} for name in board.sizes]
    return [*alone, _least(mig, lambda spec: spec.compute_slices), _least(mig, lambda spec: spec.size), mps]


def _least(pools: Sequence[MigPool], measure: Callable[[ProfileSpec], int]) -> Weights:
    """Models differ in what a profile takes; the least keeps the bound valid on all of them."""
    weights: dict[str, float] = {}
    for pool in pools:
        for name, profile in pool.profiles.items():
            spec = pool.model.profile(profile)
            if spec is not None:
                weights[name] = min(float(measure(spec)), weights.get(name, float("inf")))
    return weights


def _capacity(pool: Pool, states: Mapping[int, int], weights: Weights) -> float:
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
    """The most that one GPU in this state can weigh: asked for the same states in every group of nodes."""
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
    """The whole GB that a slice's name says; its MiB are rounded down."""
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

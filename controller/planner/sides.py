"""What each group of nodes could offer before anything is placed, in the form that bounds are computed from.

In goes the board, out comes one Side per group: sums of CPU, memory and pod slots, how many GPUs can be cut in which
ways, and the most that a single node has of each thing. Whatever stands on the board by now counts for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.planner.board import Board
from controller.planner.devices import Pool
from controller.planner.pools import MigPool, MpsPool, StockPool
from partitioning.resources import WHOLE
from partitioning.states import state_table

Amounts = dict[str, float]
"""Per thing that has a price: 'cpu', 'memory', 'pods' and resources."""
Vector = tuple[tuple[str, int], ...]


@dataclass(slots=True, kw_only=True)
class Side:
    """What one group of nodes has."""

    fixed: Amounts
    """CPU, memory, pod slots, and partitions that need no cut."""
    choices: Counter[tuple[Vector, ...]] = field(default_factory=Counter)
    """How many MIG GPUs can be cut in one of these ways."""
    shared: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many GPUs shared by MPS have so many MiB and clients left."""
    sizes_mib: Mapping[str, int] = field(default_factory=dict)
    largest: Amounts = field(default_factory=dict)
    """What the roomiest node has: who asks for more has no place here."""
    alone: Amounts = field(default_factory=dict)
    """How much of each thing there could be if all were made of it."""


def sides_of(board: Board) -> list[Side]:
    return [_side(board, group) for group in range(len(board.groups))]


def _side(board: Board, group: int) -> Side:
    rooms = [board.at_first[node] for node in board.groups[group].nodes]
    fixed: Amounts = {}
    largest: Amounts = {}
    for thing, amounts in zip(("cpu", "memory", "pods"), zip(*rooms, strict=True), strict=True):
        fixed[thing] = sum(max(0, amount) for amount in amounts)
        largest[thing] = max(amounts)
    side = Side(fixed=fixed, largest=largest)
    per_node: dict[str, Counter[int]] = {}
    for pool in board.groups[group].pools:
        _count_pool(side, pool, per_node)
    side.alone = {thing: max(1.0, amount) for thing, amount in fixed.items() if thing in largest}
    for name, counts in per_node.items():
        if any(counts.values()):
            side.alone[name] = float(counts.total())
            side.largest[name] = float(max(counts.values()))
    side.choices = Counter(
        {vectors: count for vectors, count in side.choices.items() if any(vector for vector in vectors)}
    )
    side.fixed = {thing: amount for thing, amount in fixed.items() if thing in side.alone}
    side.sizes_mib = {name: mib for name, mib in side.sizes_mib.items() if name in side.alone}
    return side


def _count_pool(side: Side, pool: Pool, per_node: dict[str, Counter[int]]) -> None:
    if isinstance(pool, MigPool):
        _count_mig(side, pool, per_node)
        return
    for device in pool.devices:
        if isinstance(pool, StockPool):
            for name in pool.serves:
                side.fixed[name] = side.fixed.get(name, 0) + device.base
                per_node.setdefault(name, Counter())[device.node] += device.base
        elif isinstance(pool, MpsPool):
            free_mib, clients = pool.free_mib(device.base), pool.clients(device.base)
            side.shared[free_mib, clients] += 1
            side.sizes_mib = pool.sizes_mib
            if pool.whole:
                per_node.setdefault(WHOLE, Counter())[device.node] += int(pool.uncut(device.base))
            for name, size_mib in sorted(pool.sizes_mib.items()):
                per_node.setdefault(name, Counter())[device.node] += min(free_mib // size_mib, clients)


def _count_mig(side: Side, pool: MigPool, per_node: dict[str, Counter[int]]) -> None:
    table = state_table(pool.model, frozenset(pool.profiles.values()))
    names = {profile: name for name, profile in pool.profiles.items()}
    nodes_at: dict[int, list[int]] = {}
    for device in pool.devices:
        nodes_at.setdefault(device.base, []).append(device.node)
    at = {state: Counter(nodes) for state, nodes in nodes_at.items()}
    for state, nodes in at.items():
        vectors = tuple(
            tuple((names[profile], number) for profile, number in zip(table.profiles, vector, strict=True) if number)
            for vector in table.pareto(state)
        )
        side.choices[vectors] += nodes.total()
        for name in sorted(pool.profiles):
            most = max((number for vector in vectors for held, number in vector if held == name), default=0)
            if most:
                counts = per_node.setdefault(name, Counter())
                for node, count in nodes.items():
                    counts[node] += most * count

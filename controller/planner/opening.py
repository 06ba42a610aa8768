"""Set up the board of a pass: rooms and groups of nodes, asks, stocks of ready partitions, GPUs that may be cut.

In go what the inventory and the demands say, out comes a Board. Idle partitions of open GPUs are space there, but
known as ready: a pod can have one as it is. The only place that turns views into planning integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from controller.demand import Demand, kind_of
from controller.planner.asks import Ask, Group, Room
from controller.planner.board import Board
from controller.planner.devices import Device, Pool, Reach, Share, Tier
from controller.planner.groups import NodeGroups, constraints_of
from controller.planner.inventory import Cut, GpuStock, NodeStock, mps_mib, slice_mib
from controller.planner.pools import MigPool, MpsPool, StockPool
from controller.planner.supply import ReadyParts
from controller.views import PartitionView
from partitioning.layouts import Instance
from partitioning.models import GpuModel
from partitioning.placements import Placement, occupancy, placement_of
from partitioning.profiles import MigProfile
from partitioning.resources import WHOLE, MigRequest, MpsRequest


def open_board(stocks: Sequence[NodeStock], groups: NodeGroups, resources: Iterable[str]) -> Board:
    """The board without devices. `resources` are those that asks name."""
    board = Board(
        rooms=[_room(stock) for stock in stocks],
        groups=[Group() for _ in range(groups.count)],
        group_of=groups.group_of,
        sizes=sorted(resources, key=_hardest_first),
    )
    for node, group in enumerate(groups.group_of):
        if group >= 0:
            board.groups[group].nodes.append(node)
    return board


def asks_of(demands: Iterable[Demand], groups: NodeGroups) -> list[Ask]:
    return [
        Ask(
            demand=demand,
            groups=groups.allowed(demand.pod),
            cpu=demand.cpu_milli,
            memory=demand.memory_bytes,
            single=demand.single,
            odd=bool(demand.other or demand.pod.host_ports),
            shape=(
                demand.wants,
                demand.cpu_milli,
                demand.memory_bytes,
                demand.other,
                demand.pod.host_ports,
                constraints_of(demand.pod),
            ),
        )
        for demand in demands
    ]


def add_stocks(board: Board, counts_of_node: Sequence[Mapping[str, int]], reach: Reach) -> None:
    """One stock per node and resource; only what asks name."""
    pools: dict[tuple[int, str], Pool] = {}
    for node, counts in enumerate(counts_of_node):
        group = board.group_of[node]
        if group < 0:
            continue
        for resource, count in sorted(counts.items()):
            if resource not in board.rank:
                continue
            key = (group, resource)
            if key not in pools:
                pools[key] = StockPool(resource, reach)
                board.groups[group].add_pool(pools[key])
            board.add(Device(node=node, pool=pools[key], base=count, tier=Tier.CHANGED_ANYWAY))


def add_gpus(board: Board, stocks: Sequence[NodeStock], ready: Sequence[ReadyParts]) -> None:
    """Every open GPU that can be cut into something that asks name."""
    sizes_mib = {name: slice_mib(name) for name in board.sizes if slice_mib(name)}
    pools: dict[tuple[int, GpuModel | None], Pool | None] = {}
    for node, stock in enumerate(stocks):
        group = board.group_of[node]
        for position, gpu in enumerate(stock.gpus):
            if group < 0 or gpu.closed is not None or gpu.model is None:
                continue
            key = (group, gpu.model if gpu.cut is Cut.MIG else None)
            if key not in pools:
                pools[key] = pool = _new_pool(gpu.model, gpu.cut, board.sizes, sizes_mib)
                if pool is not None:
                    board.groups[group].add_pool(pool)
            pool = pools[key]
            if pool is not None:
                tier = Tier.SOMETHING_IDLE if gpu.idle else Tier.NOTHING_IDLE
                parts = _ready_parts(gpu, gpu.model, ready[node].get(position, ()), pool)
                base = _state_of(gpu, gpu.model)
                board.add(Device(node=node, pool=pool, base=base, tier=tier, gpu=position, ready=parts))


def _room(stock: NodeStock) -> Room:
    allocatable = stock.node.allocatable
    requested = stock.usage.requested
    return Room(
        cpu=allocatable.get("cpu", 0) - requested.get("cpu", 0),
        memory=allocatable.get("memory", 0) - requested.get("memory", 0),
        pods=allocatable.get("pods", 0) - stock.usage.pods,
        allocatable=allocatable,
        usage=stock.usage,
    )


def _new_pool(model: GpuModel, cut: Cut | None, named: Sequence[str], sizes_mib: Mapping[str, int]) -> Pool | None:
    if cut is Cut.MPS:
        whole = WHOLE in named
        return MpsPool(sizes_mib, whole=whole) if sizes_mib or whole else None
    offered = {spec.name for spec in model.profiles if spec.starts}
    profiles = {
        name: kind.profile
        for name in named
        for kind in (kind_of(name),)
        if isinstance(kind, MigRequest) and kind.profile in offered
    }
    return MigPool(model, profiles) if profiles else None


def _state_of(gpu: GpuStock, model: GpuModel) -> int:
    """What stays, and where the last change failed; idle partitions are free space."""
    if gpu.cut is Cut.MIG:
        mask = occupancy(model, gpu.failed)
        for part in gpu.staying:
            if part.profile:
                mask |= _placement(model, part.start, part.size, part.profile).taken
        return mask
    return MpsPool.state_of(model.memory_mib - mps_mib(gpu.staying), len(gpu.staying))


@lru_cache(maxsize=4096)
def _placement(model: GpuModel, start: int, size: int, profile: str) -> Placement:
    """Thousands of GPUs hold the same few partitions."""
    return placement_of(model, Instance(start=start, size=size, profile=profile))


def _ready_parts(
    gpu: GpuStock, model: GpuModel, ready: Iterable[PartitionView], pool: Pool
) -> dict[str, tuple[Placement | Share, ...]]:
    parts: dict[str, list[Placement | Share]] = {}
    for part in ready:
        if part.resource not in pool.serves:
            continue
        if gpu.cut is Cut.MIG:
            parts.setdefault(part.resource, []).append(_placement(model, part.start, part.size, part.profile))
        else:
            parts.setdefault(part.resource, []).append(Share(part.resource, slice_mib(part.resource)))
    return {resource: tuple(found) for resource, found in parts.items()}


def _hardest_first(resource: str) -> tuple[int, int, int, str]:
    """Large partitions have the fewest places; of equal memory, those with more compute slices have fewer."""
    if resource == WHOLE:
        return (-1, 0, 0, resource)
    kind = kind_of(resource)
    if isinstance(kind, MigRequest):
        profile = MigProfile.parse(kind.profile)
        return (0, -profile.memory_gb, -profile.compute_slices, resource)
    return (1, -kind.memory_gb if isinstance(kind, MpsRequest) else 0, 0, resource)

"""Sets up the board of a pass: nodes and their groups, assignments, stocks of ready partitions, GPUs that may be cut.

Takes the inventory and the demands, returns a Board. Idle partitions of eligible GPUs are free space there, but known
as ready: a pod can have one as it is. The only place that turns views into planning integers.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache

from controller.model.capacity import Capacity
from controller.model.demand import Demand, kind_of
from controller.model.views import PartitionView
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import NO_PARTS, Device, Pool, Reach, Share, Tier
from controller.planner.board.nodes import NodeCapacity
from controller.planner.board.pools import MigPool, MpsPool, StockPool
from controller.planner.inventory.node_groups import NodeGroups
from controller.planner.inventory.stock import GpuStock, NodeStock, mps_mib, slice_mib
from controller.planner.inventory.supply import ReadyParts, divide, supply_of
from controller.planner.isolation import by_node
from crds.v1alpha1.names import Partitioning
from partitioning.layouts import Instance
from partitioning.models import GpuModel
from partitioning.mps import shareable_mib
from partitioning.placements import Placement, occupancy, placement_of
from partitioning.profiles import MigProfile
from partitioning.resources import WHOLE, MigRequest, MpsRequest

UNLIMITED = 2**62


def set_up(
    stocks: Sequence[NodeStock], groups: NodeGroups, demands: Sequence[Demand], dra_resources: Collection[str] = ()
) -> Board:
    """The board before any pod is placed. `dra_resources`: DRA serves them where a node's plugins have none of them."""
    resources = sorted({resource for demand in demands for resource, _ in demand.wants})
    requested = {name for demand in demands for name, _ in demand.needs.other}
    board = _empty_board(stocks, groups, resources, requested.intersection(dra_resources))
    add_devices(board, stocks)
    return board


def add_devices(board: Board, stocks: Sequence[NodeStock]) -> None:
    """Add what the nodes have to a board without devices."""
    supplies = by_node(lambda _, stock: supply_of(stock), stocks)
    divided = by_node(lambda node, stock: divide(stock, supplies[node]), stocks)
    _add_stocks(board, [elsewhere for elsewhere, _ in divided], Reach.EXISTING)
    _add_stocks(board, [supply.under_way for supply in supplies], Reach.UNDER_WAY)
    _add_gpus(board, stocks, [ready for _, ready in divided])


def _empty_board(
    stocks: Sequence[NodeStock], groups: NodeGroups, resources: Iterable[str], by_dra: Collection[str]
) -> Board:
    """The board without devices. `resources` are the partitions that pods request; `by_dra`: what DRA may serve."""

    def free(stock: NodeStock) -> Capacity:
        beyond = {name: UNLIMITED for name in by_dra if stock.node.capacity[name] <= 0}
        return stock.free + Capacity.of(beyond) if beyond else stock.free

    return Board(
        nodes=by_node(
            lambda _, stock: NodeCapacity(free=free(stock), usage=stock.usage, overheld=stock.overheld), stocks
        ),
        group_of=groups.group_of,
        sizes=sorted(resources, key=_hardest_first),
    )


def assignments_of(demands: Iterable[Demand], groups: NodeGroups) -> list[Assignment]:
    """Shapes are numbered: they are compared all the time."""
    shapes: dict[Hashable, int] = {}
    assignments = []
    for demand in demands:
        pod, kind = demand.pod, groups.kind_of(demand.pod)
        shape = (demand.wants, demand.needs, demand.holds, demand.host_ports, pod.host_ports, kind)
        assignment = Assignment(demand=demand, groups=groups.allowed(pod), shape=shapes.setdefault(shape, len(shapes)))
        assignments.append(assignment)
    return assignments


def _add_stocks(board: Board, counts_of_node: Sequence[Mapping[str, int]], reach: Reach) -> None:
    """One stock per node and resource; only what pods request."""
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


def _add_gpus(board: Board, stocks: Sequence[NodeStock], ready: Sequence[ReadyParts]) -> None:
    """Every eligible GPU that can be cut into something that pods request, in pools by group and model."""
    pools: dict[tuple[int, GpuModel | None], Pool | None] = {}

    def add(node: int, stock: NodeStock) -> None:
        group = board.group_of[node]
        for position, gpu in enumerate(stock.gpus if group >= 0 else ()):
            if gpu.ineligible is not None or gpu.model is None:
                continue
            key = (group, gpu.model if gpu.kind is Partitioning.MIG else None)
            if key not in pools:
                pools[key] = made = _new_pool(gpu.model, gpu.kind, board.sizes)
                if made is not None:
                    board.groups[group].add_pool(made)
            pool = pools[key]
            if pool is not None:
                parts = ready[node].get(position)
                device = Device(
                    node=node,
                    pool=pool,
                    base=state_of(gpu, gpu.model),
                    tier=Tier.SOMETHING_IDLE if gpu.idle else Tier.NOTHING_IDLE,
                    gpu=position,
                    ready=_ready_parts(gpu, gpu.model, parts, pool) if parts else NO_PARTS,
                )
                board.add(device)

    by_node(add, stocks)


def _new_pool(model: GpuModel, kind: Partitioning | None, named: Sequence[str]) -> Pool | None:
    if kind is Partitioning.MPS:
        sizes_mib, whole = {name: mib for name in named if (mib := slice_mib(name))}, WHOLE in named
        return MpsPool(sizes_mib, whole=whole) if sizes_mib or whole else None
    offered = {spec.name for spec in model.profiles if spec.starts}
    profiles = {
        name: kind.profile
        for name in named
        for kind in (kind_of(name),)
        if isinstance(kind, MigRequest) and kind.profile in offered
    }
    return MigPool(model, profiles) if profiles else None


def state_of(gpu: GpuStock, model: GpuModel) -> int:
    """What stays, and where the last change failed; idle partitions are free space."""
    if gpu.kind is Partitioning.MIG:
        mask = occupancy(model, gpu.failed) if len(gpu.failed) else 0
        for part in gpu.retained:
            if part.profile:
                mask |= _place_of(model, part.profile, part.start, part.size).taken
        return mask
    return MpsPool.state_of(shareable_mib(model.memory_mib) - mps_mib(gpu.retained), len(gpu.retained))


@lru_cache(maxsize=4096)
def _place_of(model: GpuModel, profile: str, start: int, size: int) -> Placement:
    """Thousands of GPUs of a model hold the same few partitions."""
    return placement_of(model, Instance(start=start, size=size, profile=profile))


def _ready_parts(
    gpu: GpuStock, model: GpuModel, ready: Iterable[PartitionView], pool: Pool
) -> dict[str, tuple[Placement | Share, ...]]:
    parts: dict[str, list[Placement | Share]] = {}
    mig = gpu.kind is Partitioning.MIG
    for part in (one for one in ready if one.resource in pool.serves):
        what = _place_of(model, part.profile, part.start, part.size) if mig else _share_of(part.resource)
        parts.setdefault(part.resource, []).append(what)
    return {resource: tuple(found) for resource, found in parts.items()}


@lru_cache(maxsize=1024)
def _share_of(resource: str) -> Share:
    return Share(resource, slice_mib(resource))


def _hardest_first(resource: str) -> tuple[int, int, int, str]:
    """Large partitions have the fewest places; of equal memory, those with more compute slices have fewer."""
    if resource == WHOLE:
        return (-1, 0, 0, resource)
    kind = kind_of(resource)
    if isinstance(kind, MigRequest):
        profile = MigProfile.parse(kind.profile)
        return (0, -profile.memory_gb, -profile.compute_slices, resource)
    return (1, -kind.memory_gb if isinstance(kind, MpsRequest) else 0, 0, resource)

"""The exact bound of a planning instance: how many pending pods could run at most, by mixed-integer programming.

Takes a Snapshot and returns the most pods that any plan can place, in all or level by level, solved by HiGHS
(`highspy`, the benchmark extra).
Per set of nodes it chooses how many GPUs in each state become which geometry, and how many pods of each kind go there.
With one set per node this is exact; with one set per group of nodes that are alike to every pod it is an upper bound,
and fast. It shares with the planner how a snapshot is read, and nothing of how it searches.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np

from controller.model.demand import Demand, kind_of
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planner.inventory.eligibility import take_stock
from controller.planner.inventory.node_groups import NodeGroups
from controller.planner.inventory.stock import GpuStock, NodeStock, mig_layout, mps_mib, slice_mib
from controller.planner.inventory.supply import divide, supply_of
from crds.v1alpha1.names import Partitioning
from partitioning.mps import MAX_CLIENTS, shareable_mib
from partitioning.resources import WHOLE, MigRequest
from partitioning.states import state_table

Supply = tuple[tuple[str, int], ...]
"""What one GPU gives in one geometry: partitions per resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """`pods` is proved; `found` is the best whole solution that the solver met (equal when `solved`)."""

    pods: int
    found: int
    solved: bool


@dataclass(slots=True, kw_only=True)
class _Set:
    """Nodes taken together, with what they have left."""

    group: int
    cpu: int = 0
    memory: int = 0
    pods: int = 0
    gpus: Counter[tuple[Supply, ...]] = field(default_factory=Counter)
    """How many GPUs have these choices of geometry."""
    ready: Counter[str] = field(default_factory=Counter)
    """Partitions and whole GPUs that need no cut: on GPUs that must not be changed, or on their way."""


class _Program:
    """Columns and rows of a linear program under construction."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.rows: list[tuple[float, dict[int, float]]] = []

    def column(self, cost: float, upper: float) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def at_most(self, limit: float, terms: dict[int, float]) -> None:
        if terms:
            self.rows.append((limit, terms))

    def solve(self, seconds: float) -> Bound:
        columns, rows = len(self.cost), len(self.rows)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = columns, rows
        program.col_cost_ = np.array(self.cost, dtype=np.double)
        program.col_lower_ = np.zeros(columns)
        program.col_upper_ = np.array(self.upper, dtype=np.double)
        program.row_lower_ = np.full(rows, -highspy.kHighsInf)
        program.row_upper_ = np.array([limit for limit, _ in self.rows], dtype=np.double)
        starts = np.cumsum([0, *(len(terms) for _, terms in self.rows)])
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = starts.astype(np.int32)
        program.a_matrix_.index_ = np.array([c for _, terms in self.rows for c in terms], dtype=np.int32)
        program.a_matrix_.value_ = np.array([v for _, terms in self.rows for v in terms.values()], dtype=np.double)
        program.sense_ = highspy.ObjSense.kMaximize
        program.integrality_ = [highspy.HighsVarType.kInteger] * columns
        solver = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy has no annotations
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", float(seconds))
        solver.setOptionValue("mip_rel_gap", 1e-6)
        solver.setOptionValue("threads", 2)
        solver.passModel(program)
        solver.run()
        info = solver.getInfo()
        # In too little time HiGHS may have proved nothing yet.
        trivial = float(np.dot(program.col_cost_, program.col_upper_))
        pods = int(min(info.mip_dual_bound, trivial) + 1e-6)
        found = max(0, round(info.objective_function_value)) if np.isfinite(info.objective_function_value) else 0
        return Bound(pods=pods, found=found, solved=pods == found)


def exact_bound(snapshot: Snapshot, *, per_node: bool = False, seconds: float = 60.0) -> Bound:
    """The bound over all priorities. Idle partitions of GPUs that may be changed count as raw space."""
    return _solve(snapshot, lambda _: 1, per_node=per_node, seconds=seconds)


def exact_levels(snapshot: Snapshot, *, per_node: bool = True, seconds: float = 60.0) -> tuple[int, ...] | None:
    """How many pods of each priority, the highest first, where no lower one counts against a higher one.

    Each level is worth more than all below it together, so for hundreds of pods and three levels, not for more.
    `per_node` as for `exact_bound`. None: not solved in that time.
    """
    priorities = sorted({pod.priority for pod in snapshot.pending})
    base = len(snapshot.pending) + 1
    bound = _solve(
        snapshot, lambda demand: base ** priorities.index(demand.pod.priority), per_node=per_node, seconds=seconds
    )
    if not bound.solved:
        return None
    return tuple(bound.found // base**level % base for level in reversed(range(len(priorities))))


def _solve(snapshot: Snapshot, worth: Callable[[Demand], int], *, per_node: bool, seconds: float) -> Bound:
    demands = snapshot.demands.helpable
    stocks = take_stock(snapshot, PlannerOptions())
    groups = NodeGroups(snapshot.nodes, [demand.pod for demand in demands])
    resources = sorted({resource for demand in demands for resource, _ in demand.wants})
    sets = _sets(stocks, groups, resources, per_node=per_node)
    kinds: dict[Hashable, list[Demand]] = {}
    for demand in demands:
        key = (demand.wants, demand.needs, groups.kind_of(demand.pod), worth(demand))
        kinds.setdefault(key, []).append(demand)
    program = _Program()
    parts = [_add_set(program, nodes, resources) for nodes in sets]
    for members in kinds.values():
        allowed = groups.allowed(members[0].pod)
        columns = [
            _add_kind(program, members, part, worth(members[0]))
            for nodes, part in zip(sets, parts, strict=True)
            if nodes.group in allowed
        ]
        program.at_most(len(members), dict.fromkeys(columns, 1.0))
    return program.solve(seconds)


def _sets(stocks: Sequence[NodeStock], groups: NodeGroups, resources: Sequence[str], *, per_node: bool) -> list[_Set]:
    sets: dict[int, _Set] = {}
    for number, (stock, group) in enumerate(zip(stocks, groups.group_of, strict=True)):
        if group < 0:
            continue
        nodes = sets.setdefault(number if per_node else group, _Set(group=group))
        free = stock.node.capacity - stock.usage.held
        nodes.cpu += max(0, free.cpu_milli)
        nodes.memory += max(0, free.memory_bytes)
        nodes.pods += max(0, free.pods)
        for gpu in stock.gpus:
            if gpu.ineligible is None:
                nodes.gpus[_geometries(gpu, resources)] += 1
        supply = supply_of(stock)
        nodes.ready += Counter(divide(stock, supply)[0]) + Counter(supply.under_way)
    return list(sets.values())


def _geometries(gpu: GpuStock, resources: Sequence[str]) -> tuple[Supply, ...]:
    """Every set of partitions that the GPU can give and to which nothing can be added."""
    assert gpu.model is not None
    if gpu.kind is Partitioning.MPS:
        free_mib = shareable_mib(gpu.model.memory_mib) - mps_mib(gpu.retained)
        sizes = [(slice_mib(name), name) for name in resources if slice_mib(name)]
        fillings = tuple(_fillings(free_mib, MAX_CLIENTS - len(gpu.retained), sorted(sizes, reverse=True)))
        return (*fillings, ((WHOLE, 1),)) if WHOLE in resources and not gpu.retained else fillings
    names = {kind.profile: name for name in resources for kind in (kind_of(name),) if isinstance(kind, MigRequest)}
    table = state_table(gpu.model, frozenset(names))
    vectors = table.pareto(table.mask_of(mig_layout(gpu.retained)))
    return tuple(
        tuple((names[profile], count) for profile, count in zip(table.profiles, vector, strict=True) if count)
        for vector in vectors
        if any(vector)
    )


def _fillings(free_mib: int, clients: int, sizes: Sequence[tuple[int, str]]) -> Iterator[Supply]:
    if not sizes:
        yield ()
        return
    (size_mib, name), rest = sizes[0], sizes[1:]
    most = min(clients, free_mib // size_mib)
    for count in range(most, -1, -1) if rest else (most,):
        for filling in _fillings(free_mib - count * size_mib, clients - count, rest):
            yield ((name, count), *filling) if count else filling


@dataclass(slots=True, kw_only=True)
class _Part:
    """The rows of one set of nodes to which kinds of pods add their columns."""

    partitions: dict[str, dict[int, float]]
    cpu: dict[int, float]
    memory: dict[int, float]
    pods: dict[int, float]


def _add_set(program: _Program, nodes: _Set, resources: Sequence[str]) -> _Part:
    part = _Part(partitions={name: {} for name in resources}, cpu={}, memory={}, pods={})
    for choices, count in nodes.gpus.items():
        columns = []
        for supply in choices:
            column = program.column(0.0, count)
            columns.append(column)
            for name, given in supply:
                part.partitions[name][column] = -float(given)
        program.at_most(count, dict.fromkeys(columns, 1.0))
    for name, terms in part.partitions.items():
        program.rows.append((float(nodes.ready[name]), terms))
    program.rows += [(nodes.cpu, part.cpu), (nodes.memory, part.memory), (nodes.pods, part.pods)]
    return part


def _add_kind(program: _Program, members: Sequence[Demand], part: _Part, worth: int) -> int:
    demand = members[0]
    column = program.column(worth, len(members))
    for name, count in demand.wants:
        part.partitions[name][column] = float(count)
    part.cpu[column] = float(demand.needs.cpu_milli)
    part.memory[column] = float(demand.needs.memory_bytes)
    part.pods[column] = 1.0
    return column

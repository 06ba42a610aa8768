"""Finds places for the pending pods of a snapshot.

Takes the snapshot, returns the finished board: sorts the demands, takes stock, sets up the board, and per priority
level keeps reservations, uses what is there or under way and re-cuts eligible GPUs. Never touches a partition in use,
and never changes an unsettled or pinned GPU.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from controller.model.demand import Demand, DemandSet, queue_order
from controller.model.results import PlannerPhase
from controller.model.scheduling import DEFAULT_PROFILE, SchedulerProfiles
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.setup import add_devices, assignments_of, set_up
from controller.planner.bound import upper_bound
from controller.planner.draining.choice import Choice
from controller.planner.draining.drains import Drains
from controller.planner.effort import Effort
from controller.planner.improvement import prefer_older
from controller.planner.inventory.combinations import without_turn
from controller.planner.inventory.eligibility import take_stock
from controller.planner.inventory.node_groups import NodeGroups
from controller.planner.inventory.stock import NodeStock
from controller.planner.inventory.unconstrained import without_harmless
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.gangs import Gangs, without_incomplete
from controller.planner.placement.hopeless import leave_out_hopeless
from controller.planner.strategy import Rules
from controller.planner.tries import by_level, place_best
from controller.simulator.filters import compared

OnPhase = Callable[[PlannerPhase], None]
"""Called after each phase of a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The board after every pod had its turn, and what result and explanation read with it."""

    demands: DemandSet
    gangs: Gangs
    stocks: Sequence[NodeStock]
    board: Board
    constrained: ConstrainedPlacement
    assignments: Sequence[Assignment]
    drains: Drains
    """GPUs of which partitions are drained."""
    bound: int
    """No plan places more pods than this."""
    remarks: Sequence[str]
    """What this pass could not do."""
    groups: NodeGroups
    placed_by: Mapping[PlannerPhase, int]
    """How many of the placed pods found their final node in which phase."""

    @property
    def tried(self) -> list[Assignment]:
        """Of the pods that the scheduler has tried: the result names each of them."""
        return [one for one in self.assignments if one.tried]


def search(
    snapshot: Snapshot,
    options: PlannerOptions,
    failed: Collection[str] = (),
    on_phase: OnPhase | None = None,
    effort: Effort | None = None,
) -> Finished:
    """`failed` are names of nodes that are left out, since planning them raised an error."""
    effort = effort or Effort()
    demands, gangs = without_incomplete(snapshot)
    stocks = take_stock(snapshot, options, failed)
    served = without_harmless((*demands.helpable, *demands.untried), snapshot)
    queue = [_compared(demand, options.profiles) for demand in served]
    queue.sort(key=lambda demand: queue_order(demand.pod))
    reservations = _reservations(snapshot)
    drained = ((gpu.drain.uid, node) for node, each in enumerate(stocks) for gpu in each.gpus if gpu.drain)
    kept = (*reservations.items(), *drained)
    left = without_turn(queue, len(snapshot.nodes), snapshot.unexamined, {uid for uid, _ in kept})
    groups = NodeGroups(
        snapshot.nodes,
        [demand.pod for demand in queue],
        options.profiles,
        frozenset(found.name for found in snapshot.plans if found.relabels),
        snapshot.context,
        effort=effort,
        first=snapshot.unexamined,
        left=left,
        kept=kept,
    )
    queue = [groups.settled(demand) for demand in queue]
    board = set_up(stocks, groups, queue, snapshot.context.dra_resources)
    board.effort = effort
    assignments = assignments_of(queue, groups)
    constrained = ConstrainedPlacement(snapshot, options, board, assignments)
    tried = [one for one in assignments if one.tried]

    def report(phase: PlannerPhase) -> None:
        for one in tried:
            if one.node != one.noted:
                one.noted, one.phase = one.node, phase
        if on_phase is not None:
            on_phase(phase)

    drains = Drains(snapshot=snapshot, most=options.drains, board=board, stocks=stocks, constrained=constrained)
    choice = Choice(drains=drains, options=options)
    leave_out_hopeless(board, assignments, gangs, constrained, choice.may_serve)
    able = [one for one in assignments if one.groups]
    levels, remarks = by_level(able, snapshot.aged), list[str]()
    # The others tell no nodes apart.
    if groups.tell_apart((one.pod for one in able), by_size=_scarce(board, levels, remarks)):
        board.group(groups.group_of)
        add_devices(board, stocks)
        for one in able:
            one.groups = groups.allowed(one.pod)
    constrained.begin()
    in_order = [*chain.from_iterable(levels), *(one for one in assignments if not one.groups)]
    drains.carry_on(in_order)
    report(PlannerPhase.DRAINED)
    remarks += [_without_turn(demand.pod.namespace for demand in queue if demand.pod.uid in left)] if left else []
    rules = Rules(
        reservations=reservations,
        gangs=gangs,
        constrained=constrained,
        improve_steps=options.improve_steps,
        most=upper_bound(board, [one for one in in_order if one.tried and one.groups and not one.placed], remarks),
        remarks=remarks,
        report=report,
    )
    _place(board, [[one for one in level if not one.placed] for level in levels], rules)
    take_off_broken(board, constrained, gangs, in_order)
    gangs.found.update(gangs.lacking)
    drains.settle(in_order)
    if not effort.hurries():
        choice.choose(in_order)
    constrained.unexamined |= choice.missed
    return Finished(
        demands=demands,
        gangs=gangs,
        stocks=stocks,
        board=board,
        constrained=constrained,
        assignments=in_order,
        drains=drains,
        bound=rules.most + len(drains.served),
        remarks=remarks,
        groups=groups,
        placed_by=dict(sorted(Counter(one.phase for one in tried if one.placed and one.phase is not None).items())),
    )


def _scarce(board: Board, levels: Iterable[Sequence[Assignment]], remarks: list[str]) -> bool:
    """As many of them as can be served need more than half of all CPU or memory: nodes that have little may lack it.

    Those of lower levels beyond that decide nothing.
    """
    assignments = list(chain.from_iterable(levels))
    most = upper_bound(board, [one for one in assignments if one.tried], remarks)
    free, needs = board.free_in(*range(len(board.groups))), [one.needs for one in assignments[:most]]
    cpu, memory = sum(one.cpu_milli for one in needs), sum(one.memory_bytes for one in needs)
    return 2 * cpu > free.cpu_milli or 2 * memory > free.memory_bytes


def _without_turn(namespaces: Iterable[str]) -> str:
    count = Counter(namespaces)
    most = ", ".join(f"{name} ({number})" for name, number in count.most_common(3))
    return f"{count.total()} pods had no turn: too many request unlike partitions. Most are of the namespaces {most}."


def take_off_broken(
    board: Board, constrained: ConstrainedPlacement, gangs: Gangs, assignments: Sequence[Assignment]
) -> None:
    """Leave no pod where its scheduler would refuse it, nor a part of a gang: each that leaves may break others."""
    constrained.verify()
    while gangs.drop_broken(board, assignments) and constrained.verify():
        pass


def _compared(demand: Demand, profiles: SchedulerProfiles) -> Demand:
    """Needing no more than what the pod's scheduler compares."""
    profile = profiles.get(demand.pod.scheduler_name, DEFAULT_PROFILE)
    if profile is DEFAULT_PROFILE:
        return demand
    needs = compared(demand.holds, profile)
    ports = demand.host_ports if "NodePorts" in profile.filters else ()
    return replace(demand, needs=needs, host_ports=ports)


def _place(board: Board, levels: Sequence[Sequence[Assignment]], rules: Rules) -> None:
    place_best(board, levels, rules)
    for level in levels if not board.effort.hurries() else ():
        if not all(one.placed for one in level):
            prefer_older(board, [one for one in level if rules.moves(one)], rules.improve_steps)
    rules.report(PlannerPhase.OLDER_FIRST)


def _reservations(snapshot: Snapshot) -> dict[str, int]:
    """Node numbers by pod uid; what the API server shows (a nomination of ours) outranks what we remember."""
    numbers = {node.name: number for number, node in enumerate(snapshot.nodes)}
    reserved = {uid: numbers[name] for uid, name in snapshot.reservations.items() if name in numbers}
    for pod in snapshot.pending:
        if pod.nomination_ours and pod.nominated_node in numbers:
            reserved[pod.uid] = numbers[pod.nominated_node]
    return reserved

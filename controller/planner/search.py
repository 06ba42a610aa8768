"""Finds places for the pending pods of a snapshot: takes the snapshot, returns the finished board.

It sorts the demands, takes stock, sets up the board, and per priority level keeps reservations, uses what is there or
under way and re-cuts eligible GPUs. A used partition is never touched, and an unsettled or pinned GPU never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from controller.model.demand import Demand, DemandSet, queue_order
from controller.model.scheduling import SchedulerProfiles
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.board.setup import add_gpus, add_stocks, asks_of, open_board
from controller.planner.bounds.aggregate import upper_bound
from controller.planner.improvement.consolidate import consolidate
from controller.planner.inventory.node_groups import NodeGroups
from controller.planner.inventory.stock import NodeStock, take_stock
from controller.planner.inventory.supply import divide, supply_of
from controller.planner.isolation import by_node
from controller.planner.placement.ageing import Ageing, Reservation
from controller.planner.placement.constrained import Singly
from controller.planner.placement.gangs import Gangs, without_incomplete
from controller.planner.strategy.priorities import Rules, by_level, moves_alone, place_levels

Reporter = Callable[[str, Mapping[str, str]], None]
"""Hears after each phase of a pass: its name, and the node of every pod (by uid) that has a place by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The board after every pod had its turn, and what result and explanation read with it."""

    demands: DemandSet
    gangs: Gangs
    stocks: Sequence[NodeStock]
    board: Board
    singly: Singly
    all_pods: Sequence[Ask]
    tried: Sequence[Ask]
    """Those that the scheduler has tried: the result names each of them."""
    reservation: Reservation | None
    """The GPU that is kept for an aged pod without a place."""
    bound: int
    """No plan places more pods than this."""
    profiles: SchedulerProfiles
    relabelled: frozenset[str]
    """Nodes whose labels change when they begin to share GPUs."""


def search(
    snapshot: Snapshot, options: PlannerOptions, failed: Collection[str] = (), reporter: Reporter | None = None
) -> Finished:
    """`failed` are names of nodes that are left out, since planning them raised an error."""
    demands, gangs = without_incomplete(snapshot)
    stocks = take_stock(snapshot, options.geometries, failed)
    claims = sorted((*demands.helpable, *demands.untried), key=lambda demand: queue_order(demand.pod))
    relabelled = frozenset(found.name for found in snapshot.plans if found.relabels)
    groups = NodeGroups(snapshot.nodes, [demand.pod for demand in claims], options.profiles, relabelled)
    board = _set_up(stocks, groups, claims)

    reservations = _reservations(snapshot)
    demands_by_level = by_level(claims, snapshot.aged)
    everybody = asks_of(chain.from_iterable(demands_by_level), groups)
    rest = iter(everybody)
    asks_by_level = [list(islice(rest, len(level))) for level in demands_by_level]
    tried = [ask for ask in everybody if ask.demand.tried]
    singly = Singly(snapshot, options, board, everybody)

    def report(phase: str) -> None:
        if reporter is not None:
            placed = {ask.demand.pod.uid: snapshot.nodes[ask.node].name for ask in everybody if ask.node >= 0}
            reporter(phase, placed)

    rules = Rules(
        reservations=reservations,
        gangs=gangs,
        singly=singly,
        improve_steps=options.improve_steps,
        most=upper_bound(board, tried),
        ageing=Ageing(aged=snapshot.aged, stocks=stocks, reservations=reservations, singly=singly),
        report=report,
    )
    reservation = _place(board, asks_by_level, rules)
    singly.verify()
    gangs.drop_broken(board, tried)
    return Finished(
        demands=demands,
        gangs=gangs,
        stocks=stocks,
        board=board,
        singly=singly,
        all_pods=everybody,
        tried=tried,
        reservation=reservation,
        bound=rules.most,
        profiles=options.profiles,
        relabelled=relabelled,
    )


def _place(board: Board, levels: Sequence[Sequence[Ask]], rules: Rules) -> Reservation | None:
    reservation = place_levels(board, levels, rules)
    placed = [ask for level in levels for ask in level if ask.demand.tried and ask.node >= 0]
    if consolidate(board, [ask for ask in placed if ask not in rules.singly], rules.improve_steps):
        for ask in (ask for level in levels for ask in level if ask.node < 0 and moves_alone(ask, rules)):
            board.place(ask)
    rules.report("consolidated")
    if reservation is None or reservation.ask.node < 0:
        return reservation
    if reservation.device.reserved:  # it found another place since
        board.release(reservation.ask, reservation.device)
    return None


def _set_up(stocks: Sequence[NodeStock], groups: NodeGroups, claims: Sequence[Demand]) -> Board:
    resources = sorted({resource for demand in claims for resource, _ in demand.wants})
    board = open_board(stocks, groups, resources)
    supplies = by_node(lambda _, stock: supply_of(stock), stocks)
    divided = by_node(lambda node, stock: divide(stock, supplies[node]), stocks)
    add_stocks(board, [closed for closed, _ in divided], Reach.EXISTING)
    add_stocks(board, [supply.under_way for supply in supplies], Reach.UNDER_WAY)
    add_gpus(board, stocks, [ready for _, ready in divided])
    return board


def _reservations(snapshot: Snapshot) -> dict[str, int]:
    """Node numbers by pod uid; what the API server shows (a nomination of ours) outranks what we remember."""
    numbers = {node.name: number for number, node in enumerate(snapshot.nodes)}
    reserved = {uid: numbers[name] for uid, name in snapshot.reservations.items() if name in numbers}
    for pod in snapshot.pending:
        if pod.nomination_ours and pod.nominated_node in numbers:
            reserved[pod.uid] = numbers[pod.nominated_node]
    return reserved

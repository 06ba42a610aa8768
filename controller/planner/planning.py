"""One planning pass: Snapshot in, PlanningResult out. Pure, and the same for the same snapshot, byte for byte.

It sorts the demands, takes stock, and per priority level keeps promises, uses what is there or under way and re-cuts
eligible GPUs; then it works out layouts, reasons and the bound. A used partition is never touched, an unsettled or
pinned GPU never changed, and a layout that serves no pod never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice

from controller.model.demand import Demand, collect, queue_order
from controller.model.results import PlanningResult
from controller.model.views import PlannerOptions, Snapshot
from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.bound import upper_bound
from controller.planner.consolidate import consolidate
from controller.planner.devices import Reach
from controller.planner.explain import Explainer
from controller.planner.gangs import without_incomplete
from controller.planner.groups import NodeGroups
from controller.planner.inventory import NodeStock, take_stock
from controller.planner.isolation import by_node, without_failed
from controller.planner.kept import Kept
from controller.planner.opening import add_gpus, add_stocks, asks_of, open_board
from controller.planner.order import Rules, by_level, moves_alone, place_levels
from controller.planner.outcome import outcome
from controller.planner.reserve import Ageing, Reservation
from controller.planner.singly import Singly
from controller.planner.supply import divide, supply_of

Reporter = Callable[[str, Mapping[str, str]], None]
"""Hears after each phase of a pass: its name, and the node of every pod (by uid) that has a place by then."""


def plan(snapshot: Snapshot, options: PlannerOptions | None = None, reporter: Reporter | None = None) -> PlanningResult:
    """One pass; a node whose planning raises an error is left out and named in the result."""
    with_options = options or PlannerOptions()
    return without_failed(lambda failed: _plan(snapshot, with_options, failed, reporter), len(snapshot.nodes))


def _plan(
    snapshot: Snapshot, options: PlannerOptions, failed: Collection[str], reporter: Reporter | None
) -> PlanningResult:
    collected = collect(
        snapshot.pending,
        options,
        dra_resources=snapshot.context.dra_resources,
        unbound=snapshot.unbound,
        offered=_offered(snapshot),
    )
    demands, gangs = without_incomplete(collected, snapshot)
    stocks = take_stock(snapshot, options.geometries, failed)
    claims = sorted((*demands.helpable, *demands.untried), key=lambda demand: queue_order(demand.pod))
    relabelled = frozenset(found.name for found in snapshot.plans if found.relabels)
    groups = NodeGroups(snapshot.nodes, [demand.pod for demand in claims], options.profiles, relabelled)
    board = _set_up(stocks, groups, claims)

    promises = _promises(snapshot)
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
        promises=promises,
        gangs=gangs,
        singly=singly,
        improve_steps=options.improve_steps,
        most=upper_bound(board, tried),
        ageing=Ageing(aged=snapshot.aged, stocks=stocks, promises=promises, singly=singly),
        report=report,
    )
    reservation = _place(board, asks_by_level, rules)
    singly.verify()
    gangs.drop_broken(board, tried)
    kept = None if reservation is None else Kept.of(reservation, board, stocks, everybody)
    explainer = Explainer(stocks, board, singly, options.profiles, relabelled, kept=kept)
    return outcome(demands, tried, stocks, board, bound=rules.most, explainer=explainer, gangs=gangs)


def _offered(snapshot: Snapshot) -> frozenset[str]:
    """Resources of all nodes; read only where a pod's request looks mistyped."""
    if not any(pod.misnamed for pod in snapshot.pending):
        return frozenset()
    return frozenset(chain.from_iterable(node.allocatable for node in snapshot.nodes))


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


def _promises(snapshot: Snapshot) -> dict[str, int]:
    """Node numbers by pod uid; what the API server shows (a nomination of ours) outranks what we remember."""
    numbers = {node.name: number for number, node in enumerate(snapshot.nodes)}
    promised = {uid: numbers[name] for uid, name in snapshot.promises.items() if name in numbers}
    for pod in snapshot.pending:
        if pod.nomination_ours and pod.nominated_node in numbers:
            promised[pod.uid] = numbers[pod.nominated_node]
    return promised

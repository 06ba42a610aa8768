"""One planning pass: Snapshot in, PlanningResult out. Pure, and the same for the same snapshot, byte for byte.

It reads like the order of things: sort the demands, take stock, then level by level keep promises, use what is there or
under way and cut what is open, then write down layouts, reasons and the bound. A used partition is
never touched, an unsettled or pinned GPU never changed, and a layout that serves nobody never written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, islice

from controller.model.demand import Demand, collect, queue_order
from controller.model.results import PlanningResult
from controller.model.views import PlannerOptions, Snapshot
from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.by_queue import outrun, place_in_queue_order
from controller.planner.consolidate import consolidate
from controller.planner.devices import Reach
from controller.planner.explain import Explainer
from controller.planner.gangs import without_incomplete
from controller.planner.groups import NodeGroups
from controller.planner.inventory import NodeStock, take_stock
from controller.planner.isolation import by_node, without_failed
from controller.planner.kept import Kept
from controller.planner.limit import Limit
from controller.planner.opening import add_gpus, add_stocks, asks_of, open_board
from controller.planner.order import Rules, moves_alone, place_levels
from controller.planner.outcome import outcome
from controller.planner.polish import Polisher
from controller.planner.ranks import levels
from controller.planner.reserve import Ageing, Reservation
from controller.planner.singly import Singly
from controller.planner.supply import divide, supply_of


def plan(snapshot: Snapshot, options: PlannerOptions | None = None) -> PlanningResult:
    """One pass; a node whose planning raises an error is left out and named in the result."""
    with_options = options or PlannerOptions()
    return without_failed(lambda failed: _plan(snapshot, with_options, failed), len(snapshot.nodes))


def _plan(snapshot: Snapshot, options: PlannerOptions, failed: Collection[str]) -> PlanningResult:
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

    # Schedulers know nothing of ageing: where they deal, it would only make plans that do not come true.
    aged = frozenset[str]() if options.queue_order else snapshot.aged
    demands_by_level = levels(claims, aged)
    everybody = asks_of(chain.from_iterable(demands_by_level), groups)
    rest = iter(everybody)
    by_level = [list(islice(rest, len(level))) for level in demands_by_level]
    tried = [ask for ask in everybody if ask.demand.tried]
    singly = Singly(snapshot, options, board, everybody)
    promises = {} if options.queue_order else _promises(snapshot)
    rules = Rules(
        promises=promises,
        gangs=gangs,
        singly=singly,
        improve_steps=options.improve_steps,
        limit=Limit(board, tried),
        ageing=Ageing(aged=aged, stocks=stocks, promises=promises, singly=singly),
    )
    reservation = _place(board, stocks, by_level, rules, options)
    singly.verify()
    gangs.drop_broken(board, tried)
    rules.limit.tighten()
    uncounted = outrun(board, stocks, _queue(by_level), singly) if options.queue_order else frozenset[str]()
    kept = None if reservation is None else Kept.of(reservation, board, stocks, everybody)
    explainer = Explainer(stocks, board, singly, options.profiles, relabelled, kept=kept)
    most = rules.limit.most
    return outcome(demands, tried, stocks, board, bound=most, explainer=explainer, gangs=gangs, uncounted=uncounted)


def _offered(snapshot: Snapshot) -> frozenset[str]:
    """Resources of all nodes; read only where a pod's request looks mistyped."""
    if not any(pod.misnamed for pod in snapshot.pending):
        return frozenset()
    return frozenset(chain.from_iterable(node.allocatable for node in snapshot.nodes))


def _place(
    board: Board, stocks: Sequence[NodeStock], by_level: Sequence[Sequence[Ask]], rules: Rules, options: PlannerOptions
) -> Reservation | None:
    if options.queue_order:
        place_in_queue_order(board, stocks, _queue(by_level), by_level, rules)
        return None
    reservation = place_levels(board, by_level, rules)
    placed = [ask for level in by_level for ask in level if ask.demand.tried and ask.node >= 0]
    if consolidate(board, [ask for ask in placed if ask not in rules.singly], options.improve_steps):
        for ask in (ask for level in by_level for ask in level if ask.node < 0 and moves_alone(ask, rules)):
            board.place(ask)
    helped = None if reservation is None else reservation.ask
    Polisher(board, stocks, by_level, lambda ask: ask is helped or _stays(ask, rules)).polish(options.improve_steps)
    if reservation is None or reservation.ask.node < 0:
        return reservation
    if reservation.device.reserved:  # it found another place since
        board.release(reservation.ask, reservation.device)
    return None


def _queue(by_level: Sequence[Sequence[Ask]]) -> list[Ask]:
    """A gang is in the level of its highest pod; the scheduler takes its pods one by one."""
    return sorted((ask for level in by_level for ask in level), key=lambda ask: queue_order(ask.demand.pod))


def _stays(ask: Ask, rules: Rules) -> bool:
    promised = ask.node >= 0 and rules.promises.get(ask.demand.pod.uid) == ask.node
    return promised or not ask.demand.tried or ask.odd or ask in rules.singly


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

"""One planning pass: Snapshot in, PlanningResult out. Pure, and the same for the same snapshot, byte for byte.

It reads like the order of things: sort the demands, take stock, then level by level keep promises, use what is there or
under way and cut what is open, then write down layouts, reasons and the bound. A used partition is
never touched, an unsettled or pinned GPU never changed, and a layout that serves nobody never written.
"""

from __future__ import annotations

from itertools import groupby

from controller.demand import collect, queue_order
from controller.planner.bound import upper_bound
from controller.planner.consolidate import consolidate
from controller.planner.deal import expect_binding, keep_promises
from controller.planner.devices import Reach
from controller.planner.groups import NodeGroups
from controller.planner.inventory import take_stock
from controller.planner.levels import place_level
from controller.planner.opening import add_gpus, add_stocks, asks_of, open_board
from controller.planner.outcome import outcome
from controller.planner.shadow_prices import tightened
from controller.planner.sides import sides_of
from controller.planner.supply import divide, supply_of
from controller.views import PlannerOptions, PlanningResult, Snapshot


def plan(snapshot: Snapshot, options: PlannerOptions | None = None) -> PlanningResult:
    options = options or PlannerOptions()
    demands = collect(snapshot.pending, options)
    stocks = take_stock(snapshot, options.geometries)
    claims = sorted((*demands.helpable, *demands.untried), key=lambda demand: queue_order(demand.pod))
    groups = NodeGroups(snapshot.nodes, [demand.pod for demand in claims])
    resources = sorted({resource for demand in claims for resource, _ in demand.wants})
    board = open_board(stocks, groups, resources)
    supplies = [supply_of(stock) for stock in stocks]
    promises = _promises(snapshot)
    divided = [divide(stock, supply) for stock, supply in zip(stocks, supplies, strict=True)]
    add_stocks(board, [closed for closed, _ in divided], Reach.EXISTING)
    add_stocks(board, [supply.under_way for supply in supplies], Reach.UNDER_WAY)
    add_gpus(board, stocks, [ready for _, ready in divided])

    asks = asks_of(claims, groups)
    tried = [ask for ask in asks if ask.demand.pod.unschedulable]
    bound = upper_bound(board, tried)
    sides = sides_of(board)
    for _, level in groupby(asks, key=lambda ask: ask.demand.pod.priority):
        members = list(level)
        keep_promises(board, members, promises)
        expect_binding(board, [ask for ask in members if ask.node < 0])
        open_asks = [ask for ask in members if ask.node < 0 and ask.demand.pod.unschedulable]
        standing = sum(ask.node >= 0 for ask in tried)
        place_level(board, open_asks, options.improve_steps, most=bound - standing)
    placed = [ask for ask in tried if ask.node >= 0]
    if len(placed) < bound:
        bound = tightened(sides, tried, bound=bound, placed=len(placed))
    consolidate(board, placed, options.improve_steps)
    return outcome(demands, tried, stocks, board, bound)


def _promises(snapshot: Snapshot) -> dict[str, int]:
    """Node numbers by pod uid; what the API server shows (a nomination of ours) outranks what we remember."""
    numbers = {node.name: number for number, node in enumerate(snapshot.nodes)}
    promised = {uid: numbers[name] for uid, name in snapshot.promises.items() if name in numbers}
    for pod in snapshot.pending:
        if pod.nomination_ours and pod.nominated_node in numbers:
            promised[pod.uid] = numbers[pod.nominated_node]
    return promised

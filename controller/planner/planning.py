"""One planning pass: Snapshot in, PlanningResult out. Pure, and the same for the same snapshot, byte for byte.

It reads like the order of things: sort the demands, take stock, deal what exists as the scheduler will, then level by
level use what is under way and cut what is open, then write down layouts, reasons and the bound. A used partition is
never touched, an unsettled or pinned GPU never changed, and a layout that serves nobody never written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from controller.demand import collect, queue_order
from controller.planner.board import Ask, Board
from controller.planner.bound import upper_bound
from controller.planner.deal import deal, keep_promises
from controller.planner.groups import NodeGroups
from controller.planner.inventory import NodeStock, take_stock
from controller.planner.levels import place_level
from controller.planner.opening import add_gpus, add_stocks, asks_of, open_board
from controller.planner.outcome import outcome
from controller.planner.supply import NodeSupply, reserve, supply_of
from controller.views import PlannerOptions, PlanningResult, Snapshot, Supply


def plan(snapshot: Snapshot, options: PlannerOptions | None = None) -> PlanningResult:
    options = options or PlannerOptions()
    demands = collect(snapshot.pending, options)
    stocks = take_stock(snapshot)
    claims = sorted((*demands.helpable, *demands.untried), key=lambda demand: queue_order(demand.pod))
    groups = NodeGroups(snapshot.nodes, [demand.pod for demand in claims])
    resources = sorted({resource for demand in claims for resource, _ in demand.wants})
    board = open_board(stocks, groups, resources)
    supplies = [supply_of(stock) for stock in stocks]
    promises = _promises(snapshot)

    asks = asks_of(claims, groups)
    _deal_existing(board, stocks, supplies, asks, promises)
    add_stocks(board, [supply.under_way for supply in supplies], resources, Supply.UNDER_WAY)
    add_gpus(board, stocks, resources)
    tried = [ask for ask in asks if ask.demand.pod.unschedulable]
    unserved = [ask for ask in tried if ask.node < 0]
    bound = len(tried) - len(unserved) + upper_bound(board, unserved)
    for _, level in groupby(unserved, key=lambda ask: ask.demand.pod.priority):
        members = list(level)
        keep_promises(board, members, promises)
        place_level(board, [ask for ask in members if ask.node < 0])
    return outcome(demands, tried, stocks, board, bound)


def _promises(snapshot: Snapshot) -> dict[str, int]:
    """Node numbers by pod uid; what the API server shows (a nomination of ours) outranks what we remember."""
    numbers = {node.name: number for number, node in enumerate(snapshot.nodes)}
    promised = {uid: numbers[name] for uid, name in snapshot.promises.items() if name in numbers}
    for pod in snapshot.pending:
        if pod.nomination_ours and pod.nominated_node in numbers:
            promised[pod.uid] = numbers[pod.nominated_node]
    return promised


def _deal_existing(
    board: Board,
    stocks: Sequence[NodeStock],
    supplies: Sequence[NodeSupply],
    asks: Sequence[Ask],
    promises: Mapping[str, int],
) -> None:
    """Afterwards the stocks hold what closed GPUs have left; the rest is free space of open GPUs again."""
    devices = add_stocks(board, [supply.existing for supply in supplies], board.sizes, Supply.EXISTING)
    deal(board, asks, promises)
    taken: list[Counter[str]] = [Counter() for _ in stocks]
    for device in devices:
        for resource in device.pool.serves:
            taken[device.node][resource] += len(device.parts)
    left = [reserve(*each) for each in zip(stocks, supplies, taken, strict=True)]
    for device in devices:
        board.restate(device, sum(left[device.node].get(resource, 0) for resource in device.pool.serves))

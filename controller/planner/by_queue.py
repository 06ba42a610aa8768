"""Plans that hold without nominations: they count on the pods to which the scheduler will hand the slices by itself.

In go the board and the asks in queue order (priority, then creation; the scheduler knows nothing of ageing, promises or
what is best for most). Where not all can be served, whoever comes first is planned first, even where others would be
more. Then the scheduler's turn is replayed on the supply that the plan makes: every waiting pod, tried or not, in queue
order takes a node that has what it asks, once the one with most free CPU and once the one with least, since real scores
are not known. Out come the asks that stand on the board and find nothing in one of the replays: a slice is made for
them, but the plan does not count on them, since others before them may take it. Nobody has to jump the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby

from controller.planner.asks import Ask
from controller.planner.board import Board
from controller.planner.consolidate import consolidate
from controller.planner.devices import Reach
from controller.planner.gangs import GangKey, key_of
from controller.planner.inventory import NodeStock
from controller.planner.levels import demand
from controller.planner.order import Levels, Rules, moves_alone, place_levels
from controller.planner.realise import realise
from controller.planner.repair import repaired
from controller.planner.singly import Singly
from controller.planner.supply import desired_counts


def place_in_queue_order(
    board: Board, stocks: Sequence[NodeStock], queue: Sequence[Ask], levels: Levels, rules: Rules
) -> None:
    """`queue`: the asks of all levels, in the scheduler's order."""
    tried = [ask for ask in queue if ask.demand.tried]
    place_levels(board, levels, rules)
    if any(ask.node < 0 for ask in tried) or outrun(board, stocks, queue, rules.singly):
        board.clear(queue)
        rules.gangs.found.clear()
        _one_after_the_other(board, queue, rules)
    alike = [ask for ask in tried if ask.node >= 0 and ask not in rules.singly]
    if consolidate(board, alike, rules.improve_steps):
        _place(board, (ask for ask in tried if ask.node < 0 and moves_alone(ask, rules)))


def _one_after_the_other(board: Board, queue: Sequence[Ask], rules: Rules) -> None:
    """A gang that finds no place for all of it is left out, and the others are placed again."""
    for group in range(len(board.groups)):
        demand(board, group, board.sizes)
    out: set[GangKey | None] = set()
    while True:
        meant = [ask for ask in queue if key_of(ask.demand.pod) not in out]
        for one_by_one, run in groupby(meant, key=lambda ask: ask in rules.singly):
            if one_by_one:
                _place_singly(list(run), rules.singly)
            else:
                _place(board, run)
        standing = Counter(key_of(ask.demand.pod) for ask in meant if ask.node >= 0)
        broken = [gang for gang, needed in rules.gangs.needs.items() if gang not in out and standing[gang] < needed]
        if not broken:
            return
        rules.gangs.found.update({gang: standing[gang] for gang in broken})
        out.update(broken)
        board.clear(queue)


def _place(board: Board, asks: Iterable[Ask]) -> None:
    """What is there or under way first; a pod that was not tried yet gets what exists and no more."""
    for ask in asks:
        if not ask.demand.tried:
            board.place(ask, reach=Reach.EXISTING)
        elif not board.place(ask, reach=Reach.UNDER_WAY):
            board.place(ask)


def _place_singly(asks: Sequence[Ask], singly: Singly) -> None:
    singly.place((ask for ask in asks if not ask.demand.tried), Reach.EXISTING)
    singly.place(ask for ask in asks if ask.demand.tried)


# ------------------------------------------------------------------------------------------------------ replay


@dataclass(slots=True)
class _Node:
    cpu: int
    memory: int
    pods: int
    supply: Counter[str]


def outrun(board: Board, stocks: Sequence[NodeStock], queue: Sequence[Ask], singly: Singly) -> frozenset[str]:
    """Uids of pods that stand on the board, and for which nothing may be left at their turn."""
    missing: set[str] = set()
    for sign in (-1, 1):
        nodes = _supplied(board, stocks)
        for ask in queue:
            if ask.node >= 0:
                node = nodes[ask.node]
                node.cpu, node.memory, node.pods = node.cpu + ask.cpu, node.memory + ask.memory, node.pods + 1
        served = _replay(board, nodes, queue, singly, sign)
        missing.update(ask.demand.pod.uid for ask in queue if ask.node >= 0 and id(ask) not in served)
    gangs = {key_of(ask.demand.pod) for ask in queue if ask.demand.pod.gang and ask.demand.pod.uid in missing}
    return frozenset(missing).union(ask.demand.pod.uid for ask in queue if key_of(ask.demand.pod) in gangs)


def _supplied(board: Board, stocks: Sequence[NodeStock]) -> list[_Node]:
    """What each node has left, and the free partitions that it will offer."""
    nodes = []
    for room, stock, devices in zip(board.rooms, stocks, board.devices, strict=True):
        supply: Counter[str] = Counter()
        changed = {device.gpu for device in devices if device.changed}
        for device in devices:
            if device.gpu < 0:
                supply.update(dict.fromkeys(device.pool.serves, device.base))
            elif device.gpu not in changed:
                supply.update({name: len(parts) for name, parts in device.ready.items()})
        found = realise(stock, repaired(stock), [device for device in devices if device.changed]) if changed else None
        if found is not None:
            items = {item.index: item.desired for item in found.change.gpus}
            for number in changed:
                gpu = stock.gpus[number]
                supply += desired_counts(items.get(gpu.view.index)) - Counter(part.resource for part in gpu.staying)
        nodes.append(_Node(room.cpu, room.memory, room.pods, supply))
    return nodes


def _replay(board: Board, nodes: Sequence[_Node], queue: Sequence[Ask], singly: Singly, sign: int) -> set[int]:
    """Who finds a place: most free CPU first (-1), or least (1). Pods that depend on others go where planned."""
    heaps: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for number, node in enumerate(nodes):
        for name in node.supply:
            heappush(heaps.setdefault((board.group_of[number], name), []), (sign * node.cpu, number))
    served: set[int] = set()
    for ask in queue:
        number = ask.node if ask in singly else _chosen(ask, nodes, heaps, sign)
        if number >= 0 and _fits(ask, nodes[number]):
            node = nodes[number]
            node.cpu, node.memory, node.pods = node.cpu - ask.cpu, node.memory - ask.memory, node.pods - 1
            node.supply.subtract(dict(ask.demand.wants))
            for name in node.supply:
                heappush(heaps[board.group_of[number], name], (sign * node.cpu, number))
            served.add(id(ask))
    return served


def _chosen(ask: Ask, nodes: Sequence[_Node], heaps: dict[tuple[int, str], list[tuple[int, int]]], sign: int) -> int:
    """The best-ranked node of all its groups where it fits; entries whose node has changed since are dropped."""
    name, _ = ask.demand.wants[0]
    best: tuple[int, int] | None = None
    for group in ask.groups:
        heap = heaps.get((group, name), [])
        aside: list[tuple[int, int]] = []
        while heap and (best is None or heap[0] < best):
            ranked, number = heappop(heap)
            node = nodes[number]
            if node.supply[name] <= 0 or ranked != sign * node.cpu:
                continue
            aside.append((ranked, number))
            if _fits(ask, node):
                best = (ranked, number)
                break
        for entry in aside:
            heappush(heap, entry)
    return -1 if best is None else best[1]


def _fits(ask: Ask, node: _Node) -> bool:
    enough = node.cpu >= ask.cpu and node.memory >= ask.memory and node.pods >= 1
    return enough and all(node.supply[name] >= count for name, count in ask.demand.wants)

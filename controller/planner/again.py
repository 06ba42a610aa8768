"""Ruin and recreate: take the asks off a few nodes of a small cluster, and place them again with those that wait.

In go the board, the asks of one level, and those of higher levels, which keep a place but perhaps not the one that they
have; at least as many stand on the board after. What stands no worse than before stays, so that a board that cannot be
improved by one such step drifts until it can. (Schrimpf and others, Record breaking optimization results using the ruin
and recreate principle, 2000.) Who is left out, and which group of nodes each is tried in first, is diced around the
prices that prove the bound. The dice have a fixed seed: the same board, the same result. Bounded by a count of
placings, never by a clock. In a large cluster a pod or two are no per cent, and nothing is done there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from random import Random

from controller.planner.asks import Ask, Taken
from controller.planner.board import Board
from controller.planner.clearing import Budget

FEW = 128
"""Up to so many devices count as a small cluster."""
_NODES = (2, 3, 3, 4)
"""How many nodes are cleared together."""
_SHARES = (0.3, 0.6, 1.0)
"""How much of a node is cleared."""
_BEFORE_ALL = 0.3
"""How often one that waits is placed before all others, however easy it is."""
_ALIKE, _WAITING = 3, 256
"""How many waiting asks of one shape, and how many in all, are thought of: each round sorts them."""
_NOISE = 0.15
"""By how much dearer asks may come before cheaper ones, and dearer groups: 1 is what one served ask is worth."""


def is_small(board: Board) -> bool:
    return sum(map(len, board.devices)) <= FEW


class Again:
    def __init__(
        self,
        board: Board,
        asks: Sequence[Ask],
        kept: Sequence[Ask],
        *,
        price: Callable[[Ask, int], float],
        hardness: Callable[[Ask], tuple[int, int, int, int]],
    ) -> None:
        """`asks` may be moved or left out, `kept` moved only; `price` is what one costs in a group."""
        self._board = board
        self._kept = {id(ask) for ask in kept}
        waiting = [ask for ask in asks if ask.node < 0]
        asks = [*asks, *kept]
        self._dice = Random(1)
        self._nodes = {id(ask): [node for group in ask.groups for node in board.groups[group].nodes] for ask in asks}
        self._prices = {id(ask): {group: price(ask, group) for group in ask.groups} for ask in asks}
        # Those that keep a place come before the cheapest of the others.
        self._least = {
            number: min(prices.values(), default=inf) if number not in self._kept else -1.0
            for number, prices in self._prices.items()
        }
        self._hardness = {id(ask): hardness(ask)[:2] for ask in asks}
        self._at: dict[int, dict[int, Ask]] = {node: {} for node in range(len(board.rooms))}
        possible = [ask for ask in waiting if self._least[id(ask)] < inf]
        self._waiting = _some_of_each(sorted(possible, key=lambda ask: self._least[id(ask)]))
        for ask in asks:
            if ask.node >= 0:
                self._at[ask.node][id(ask)] = ask

    def place(self, more: int, placings: int) -> int:
        """No more than `more` of those that wait can find a place. Returns how many placings it took."""
        budget = Budget(placings)
        best = self._standing()
        most = len(best) + more
        drifted = False
        while len(best) < most and self._waiting and budget.spend():
            drifted = True
            if self._try(budget):
                best, drifted = self._standing(), False
        if drifted:  # for nothing, and what stood before costs less
            self._board.restore([ask for here in self._at.values() for ask in here.values()], best)
        return placings - max(0, budget.steps)

    def _standing(self) -> list[tuple[Ask, int, Taken]]:
        return [(ask, ask.node, ask.taken) for here in self._at.values() for ask in here.values()]

    def _try(self, budget: Budget) -> int:
        """One round; how many more stand now."""
        first = self._dice.choice(self._waiting)
        share = self._dice.choice(_SHARES)
        nodes = self._some_nodes(first)
        out = [
            (ask, ask.node, ask.taken)
            for node in nodes
            for ask in self._at[node].values()
            if self._dice.random() < share
        ]
        waiting = self._cheapest(self._waiting)
        invited = list({id(ask): ask for ask in (first, *waiting[: len(out) + 1])}.values())
        todo = invited + [ask for ask, _, _ in out]
        # Opening devices anew takes about as long as placing.
        budget.spend(len(todo) + sum(len(self._board.devices[node]) for node in nodes))
        self._board.clear([ask for ask, _, _ in out])
        self._recreate(self._order(first, todo, len(out) + 1))
        more = sum(ask.node >= 0 for ask in todo) - len(out)
        if more < 0 or any(ask.node < 0 and id(ask) in self._kept for ask, _, _ in out):
            self._board.restore(todo, out)
            return 0
        for ask, node, _ in out:
            del self._at[node][id(ask)]
        for ask in todo:
            if ask.node >= 0:
                self._at[ask.node][id(ask)] = ask
        self._waiting = [ask for ask in waiting if ask.node < 0] + [ask for ask, _, _ in out if ask.node < 0]
        return more

    def _some_nodes(self, ask: Ask) -> list[int]:
        """One that the ask could use, and others to which those may go that stand there."""
        found = [self._dice.choice(self._nodes[id(ask)])]
        for _ in range(self._dice.choice(_NODES) - 1):
            here = list(self._at[self._dice.choice(found)].values())
            node = self._dice.choice(self._nodes[id(self._dice.choice(here))]) if here else found[0]
            if node not in found:
                found.append(node)
        return found

    def _cheapest(self, asks: Sequence[Ask]) -> list[Ask]:
        """The cheapest first, more or less."""
        return sorted(asks, key=lambda ask: self._least[id(ask)] + _NOISE * self._dice.random())

    def _order(self, first: Ask, todo: Sequence[Ask], count: int) -> list[Ask]:
        """So many of the cheapest before anybody else, hardest first; now and then one that waits before all."""
        cheapest = self._cheapest(todo)
        chosen = sorted(cheapest[:count], key=lambda ask: (*self._hardness[id(ask)], self._dice.random()))
        order = [*chosen, *cheapest[count:]]
        if self._dice.random() < _BEFORE_ALL:
            order.remove(first)
            order.insert(0, first)
        return order

    def _recreate(self, order: Sequence[Ask]) -> None:
        """Each in the cheapest group, more or less, that has room."""
        for ask in order:
            prices = self._prices[id(ask)]
            self._board.place(ask, sorted(prices, key=lambda group: prices[group] + _NOISE * self._dice.random()))


def _some_of_each(asks: Sequence[Ask]) -> list[Ask]:
    seen: Counter[int] = Counter()
    found: list[Ask] = []
    for ask in asks:
        seen[ask.shape] += 1
        if seen[ask.shape] <= _ALIKE:
            found.append(ask)
    return found[:_WAITING]

"""A tighter upper bound, by prices that differ between groups of nodes: what selectors and taints keep apart.

In go the capacities of each group before anything is placed, and the asks; out come a number that no plan exceeds, and
the prices that prove it. For any prices of CPU, memory, pod slots and partitions per group, no plan serves more than
all capacities are worth plus what each ask is worth beyond the cheapest group that may serve it (Lagrangian duality).
So every try is valid, and the prices only decide how near it is: they follow scarcity for a fixed number of rounds, no
solver needed. Near the optimum they also tell who is served where: an ask that costs more than 1 takes the room of
more than one other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from math import inf

from controller.planner.asks import Ask
from controller.planner.fillings import richest, slice_gb, units
from controller.planner.sides import Amounts, Side
from partitioning.mps import MAX_CLIENTS
from partitioning.resources import WHOLE

_ROUNDS = 120
_WORK = 150_000
"""Asks' kinds times rounds: many kinds get fewer rounds."""
_FEWEST_ROUNDS = 20
_NEAR = 1e-3
"""A bound that exceeds what is placed by less than this share tells enough: none is sought below it."""
_SLACK = 1e-6
"""Rounding of floats must never make the bound too small."""
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Proof:
    bound: int
    """So many asks find a place, or fewer."""
    prices: Sequence[Amounts]
    """Per group what each thing is worth where the bound is nearest, in served asks; all 0 where none was sought."""

    def price(self, ask: Ask, group: int) -> float:
        """What an ask costs in a group; infinite where the group has nothing of a resource."""
        prices = self.prices[group]
        if any(resource not in prices for resource, _ in ask.demand.wants):
            return inf
        return sum([prices.get(thing, 0.0) * amount for thing, amount in _needs(ask)])


@dataclass(frozen=True, slots=True)
class _Kind:
    """Asks that take the same and may go to the same groups."""

    needs: tuple[tuple[str, int], ...]
    groups: tuple[int, ...]
    served: bool
    count: int


def tightened(
    sides: Sequence[Side], asks: Sequence[Ask], *, bound: int, placed: int, served: Collection[int] = ()
) -> Proof:
    """At most `bound`; `placed` asks are known to fit. Asks whose id is in `served` are served in any case."""
    kinds = _kinds(sides, asks, served)
    bound = min(bound, sum(kind.count for kind in kinds))
    prices: list[Amounts] = [dict.fromkeys(side.alone, 0.0) for side in sides]
    if bound - placed <= bound * _NEAR:
        return Proof(bound, prices)
    least, nearest = inf, prices
    rounds = max(_FEWEST_ROUNDS, min(_ROUNDS, _WORK // max(1, sum(len(kind.groups) for kind in kinds))))
    for _ in range(rounds):
        value, surplus = _worth(sides, kinds, prices)
        if value < least:
            least, nearest = value, [dict(price) for price in prices]
        bound = min(bound, int(value + _SLACK))
        if bound <= placed or not _follow(sides, prices, surplus, value - placed):
            break
    return Proof(bound, nearest)


def _kinds(sides: Sequence[Side], asks: Sequence[Ask], served: Collection[int]) -> list[_Kind]:
    counts: Counter[Hashable] = Counter()
    example: dict[Hashable, Ask] = {}
    for ask in asks:
        key = (ask.demand.wants, ask.cpu, ask.memory, ask.groups, id(ask) in served)
        counts[key] += 1
        example.setdefault(key, ask)
    kinds = []
    for kind, ask in example.items():
        needs = _needs(ask)
        able = tuple(
            group
            for group in ask.groups
            if all(amount <= sides[group].largest.get(thing, 0) for thing, amount in needs)
        )
        if able:
            kinds.append(_Kind(needs=needs, groups=able, served=id(ask) in served, count=counts[kind]))
    return kinds


def _needs(ask: Ask) -> tuple[tuple[str, int], ...]:
    return (("cpu", ask.cpu), ("memory", ask.memory), ("pods", 1), *ask.demand.wants)


# --------------------------------------------------------------------------------------------------- prices


def _worth(sides: Sequence[Side], kinds: Sequence[_Kind], prices: Sequence[Amounts]) -> tuple[float, list[Amounts]]:
    """The bound that these prices prove, and per group how much of each thing is left over at them."""
    value = 0.0
    surplus: list[Amounts] = []
    for side, price in zip(sides, prices, strict=True):
        worth, offered = _offered(side, price)
        value += worth
        surplus.append(offered)
    for kind in kinds:
        costs = [sum(prices[group][thing] * amount for thing, amount in kind.needs) for group in kind.groups]
        least = min(costs)
        if least >= 1 and not kind.served:
            continue
        value += kind.count * (1 - least)
        cheapest = [group for group, cost in zip(kind.groups, costs, strict=True) if cost <= least + _TIE]
        share = kind.count / len(cheapest)
        for group in cheapest:
            left = surplus[group]
            for thing, amount in kind.needs:
                left[thing] -= share * amount
    return value, surplus


def _offered(side: Side, price: Amounts) -> tuple[float, Amounts]:
    """The dearest that a group's capacities can be made into, and what that is."""
    offered = dict.fromkeys(side.alone, 0.0)
    worth = 0.0
    for thing, amount in side.fixed.items():
        worth += price[thing] * amount
        offered[thing] += amount
    for vectors, count in side.choices.items():
        best, chosen = -1.0, vectors[0]
        for vector in vectors:
            sold = sum([price[name] * number for name, number in vector])
            if sold > best:
                best, chosen = sold, vector
        worth += count * best
        for name, number in chosen:
            offered[name] += count * number
    if side.shared:
        worth += _offer_shared(side, price, offered)
    return worth, offered


def _offer_shared(side: Side, price: Amounts, offered: Amounts) -> float:
    """By memory, or by clients as if each had the dearest slice, whichever proves less."""
    sizes = side.sizes_mib
    names = sorted(sizes)
    dearest = max(names, key=lambda name: (price[name], name), default="")
    gb = {gpu: units(*gpu, sizes) for gpu in side.shared}
    fillings = richest([(slice_gb(sizes[name]), price[name]) for name in names], max(gb.values(), default=0))
    worth = 0.0
    for gpu, count in side.shared.items():
        best, filling = fillings[gb[gpu]]
        slices: list[tuple[str, float]] = list(zip(names, filling, strict=True))
        if dearest and gpu[1] * price[dearest] < best:
            best, slices = gpu[1] * price[dearest], [(dearest, gpu[1])]
        if WHOLE in price and gpu[1] == MAX_CLIENTS and price[WHOLE] >= best:
            best, slices = price[WHOLE], [(WHOLE, 1)]
        worth += count * best
        for name, number in slices:
            offered[name] += count * number
    return worth


def _follow(sides: Sequence[Side], prices: Sequence[Amounts], surplus: Sequence[Amounts], excess: float) -> bool:
    """Scarce things become dearer, what is left over cheaper; False where nothing moves any more."""
    moves = [
        (group, thing, left / sides[group].alone[thing])
        for group, over in enumerate(surplus)
        for thing, left in over.items()
        if left < 0 or prices[group][thing] > 0
    ]
    square = sum(relative * relative for _, _, relative in moves)
    if square <= 0:
        return False
    step = excess / square
    for group, thing, relative in moves:
        price = prices[group][thing] - step * relative / sides[group].alone[thing]
        prices[group][thing] = max(0.0, price)
    return True

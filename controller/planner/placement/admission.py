"""Which pods of one node group to serve when not all of them fit: as many as possible, level by level.

Takes a group's assignments, returns the chosen ones and the rest. For each of a grid of prices on GPU, CPU and memory,
they are sorted by what they cost, and the longest prefix that can be packed is found; the price that admits most wins.
Packing is tested on counts of device states, not on devices, so a test costs the same for 10 GPUs and 10,000; whether
each node has the CPU in the right place shows when the chosen are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Pool
from controller.planner.placement.gangs import GangKey, key_of
from controller.planner.placement.packing_check import Tally
from controller.planner.placement.shares import Scale, Shares, competing

_SCARCE = 0.9
"""A dimension that is loaded less than this does not decide who fits."""
_STEPS = 10


@dataclass(frozen=True, slots=True)
class _Priced:
    ask: Ask
    shares: Shares


def choose(
    board: Board, group: int, asks: Sequence[Ask], scale: Scale, ranks: Mapping[int, int]
) -> tuple[list[Ask], list[Ask]]:
    """The chosen and the rest; `ranks` are levels by id, of which the lowest number is chosen first."""
    priced = _alike_in_gangs([_Priced(ask, scale.shares(ask)) for ask in sorted(asks, key=_tie_break)])
    tally = Tally.of(board, group)
    served: list[Ask] = []
    unserved: list[Ask] = []
    for rivals in _rivals(board.groups[group].pools, priced):
        left = tally
        for members in _by_rank(rivals, ranks):
            chosen, rest = _choose(members, left)
            left = left.beside(chosen)
            served += chosen
            unserved += rest
    return served, unserved


def _rivals(pools: Sequence[Pool], priced: list[_Priced]) -> list[list[_Priced]]:
    """Asks that compete for the same GPUs, where nothing else is scarce: shares of unlike GPUs do not add up."""
    cpu, memory = (sum(one.shares[dimension] for one in priced) for dimension in (1, 2))
    if max(cpu, memory) > _SCARCE or any(one.ask.demand.pod.gang for one in priced):
        return [priced]
    kinds = competing(pools, (one.ask for one in priced))
    found = [[one for one in priced if one.ask.demand.wants[0][0] in kind] for kind in kinds]
    return [rivals for rivals in found if rivals]


def _by_rank(priced: Sequence[_Priced], ranks: Mapping[int, int]) -> list[list[_Priced]]:
    members: dict[int, list[_Priced]] = {}
    for one in priced:
        members.setdefault(ranks.get(id(one.ask), 0), []).append(one)
    return [members[rank] for rank in sorted(members)]


def _choose(priced: list[_Priced], tally: Tally) -> tuple[list[Ask], list[Ask]]:
    best: tuple[int, list[_Priced]] | None = None
    for prices in _grid(priced):
        ordered = sorted(priced, key=_cost_at(prices))
        fitting = _longest_fitting(ordered, tally)
        if best is None or fitting > best[0]:
            best = (fitting, ordered)
        if fitting == len(priced):
            break
    if best is None:
        return [], []
    fitting, ordered = best
    return [one.ask for one in ordered[:fitting]], [one.ask for one in ordered[fitting:]]


def _alike_in_gangs(priced: list[_Priced]) -> list[_Priced]:
    """Pods of a gang cost the same, so that they are served together or left out together."""
    members: dict[GangKey, list[Shares]] = {}
    for one in priced:
        gang = key_of(one.ask.demand.pod)
        if gang is not None:
            members.setdefault(gang, []).append(one.shares)
    if not members:
        return priced
    means = {gang: _mean(shares) for gang, shares in members.items()}
    return [_Priced(one.ask, means.get(key_of(one.ask.demand.pod) or ("", ""), one.shares)) for one in priced]


def _mean(shares: Sequence[Shares]) -> Shares:
    gpu, cpu, memory = (sum(each) / len(shares) for each in zip(*shares, strict=True))
    return (gpu, cpu, memory)


def _tie_break(ask: Ask) -> tuple[str, int, tuple[str, str]]:
    pod = ask.demand.pod
    return (pod.gang, pod.created, pod.key)


def _cost_at(prices: Shares) -> Callable[[_Priced], float]:
    price, cpu_price, memory_price = prices

    def cost(one: _Priced) -> float:
        gpu, cpu, memory = one.shares
        return gpu * price + cpu * cpu_price + memory * memory_price

    return cost


def _grid(priced: Sequence[_Priced]) -> list[Shares]:
    """Price vectors over the scarce dimensions, the extremes first."""
    totals = [sum(one.shares[dimension] for one in priced) for dimension in range(3)]
    scarce = [dimension for dimension in range(3) if totals[dimension] > _SCARCE] or [0]
    steps = [(gpu, cpu, _STEPS - gpu - cpu) for gpu in range(_STEPS + 1) for cpu in range(_STEPS + 1 - gpu)]
    if len(scarce) == 3:
        steps = [step for step in steps if all(part % 2 == 0 for part in step)]
    wanted = [step for step in steps if all(part == 0 or dimension in scarce for dimension, part in enumerate(step))]
    return [(gpu / _STEPS, cpu / _STEPS, memory / _STEPS) for gpu, cpu, memory in reversed(wanted)]


def _longest_fitting(ordered: Sequence[_Priced], tally: Tally) -> int:
    """The length of the longest prefix that fits: CPU and memory by sums, partitions by trial packing."""
    most = _longest_by_sums(ordered, tally)
    if tally.packs(one.ask for one in ordered[:most]):
        return most
    fits, fails = 0, most
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if tally.packs(one.ask for one in ordered[:middle]):
            fits = middle
        else:
            fails = middle
    return fits


def _longest_by_sums(ordered: Sequence[_Priced], tally: Tally) -> int:
    cpu, memory = tally.cpu, tally.memory
    for position, one in enumerate(ordered):
        cpu -= one.ask.cpu
        memory -= one.ask.memory
        if cpu < 0 or memory < 0 or position >= tally.pods:
            return position
    return len(ordered)

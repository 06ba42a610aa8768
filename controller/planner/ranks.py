"""Which priority level each demand is placed in.

In go demands and the pods that have waited too long, out come demands by level, the highest first. An aged pod counts
as the next higher priority that any other pod has, or as a level of its own above all. A gang is in one level, that of
its highest pod. The order within a level is the queue's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

from controller.model.demand import Demand
from controller.planner.gangs import GangKey, key_of


def levels(demands: Sequence[Demand], aged: Collection[str]) -> list[list[Demand]]:
    """`demands` are in queue order."""
    priorities = sorted({demand.pod.priority for demand in demands})
    ranks: list[int] = []
    of_gang: dict[GangKey, int] = {}
    for demand in demands:
        pod = demand.pod
        rank = bisect_right(priorities, pod.priority) + (pod.uid in aged)
        gang = key_of(pod)
        if gang is not None:
            of_gang[gang] = max(rank, of_gang.get(gang, rank))
        ranks.append(rank)
    found: dict[int, list[Demand]] = {}
    for demand, rank in zip(demands, ranks, strict=True):
        gang = key_of(demand.pod)
        found.setdefault(rank if gang is None else of_gang[gang], []).append(demand)
    return [found[rank] for rank in sorted(found, reverse=True)]

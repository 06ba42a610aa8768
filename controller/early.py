"""Judges whether a pass may come before its batch window is over: whether it costs no pod anything.

The window exists so that pods that come together are planned together. A pod that comes alone gains nothing by it.
Takes the snapshot, the uids of the new pods and the planner; returns the result if it may be kept. Pure; must never
decide where a pod goes.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot

MOST_WAITING = 50
"""With more pods that wait for a place, planning twice costs more than a second of window is worth."""


def early_result(
    snapshot: Snapshot, new: Collection[str], planner: Callable[[Snapshot], PlanningResult], *, news: bool
) -> PlanningResult | None:
    """None: the window goes on. `news`: something besides the new pods has changed since the last pass.

    Of a gang more pods come. A pod that the last pass could not place may have its place now, if there is news: where
    it has one without the new pods, all are planned together. Without news there is nothing for it.
    """
    pending = {pod.uid: pod for pod in snapshot.pending}
    if any(pending[uid].gang for uid in new if uid in pending):
        return None
    demanded = {demand.pod.uid for demand in snapshot.demands.helpable}
    waiting = demanded.difference(new, snapshot.reservations)
    if news and waiting:
        if len(waiting) > MOST_WAITING:
            return None
        others = tuple(pod for pod in snapshot.pending if pod.uid not in new)
        if waiting & _placed(planner(replace(snapshot, pending=others))):
            return None
    result = planner(snapshot)
    return result if costs_no_pod(snapshot, new, result) else None


def costs_no_pod(snapshot: Snapshot, new: Collection[str], result: PlanningResult) -> bool:
    """Every new pod and every pod that had a place has one, and nothing that is there is destroyed."""
    if result.counts.partitions_destroyed or result.cut_short is not None:
        return False
    kept = {pod.uid for pod in snapshot.pending}.intersection((*new, *snapshot.reservations))
    return kept <= _placed(result)


def _placed(result: PlanningResult) -> set[str]:
    return {pod.uid for pod in result.placed}

"""Judges whether a pass may come before its batch window is over: whether it costs no pod anything.

The window exists so that pods that come together are planned together. A pod that comes alone gains nothing by it.
Takes the snapshot, the uids of the new pods and, of the pass that was tried for them, the result. Pure; must never
decide where a pod goes.
"""

from collections.abc import Collection

from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot


def may_be_tried(snapshot: Snapshot, new: Collection[str], *, news: bool) -> bool:
    """Worth the work of a pass. `news`: something besides the new pods has changed since the last one.

    Of a gang more pods come. A pod that the last pass could not place may have its place now, if there is news: then
    all are planned together. Without news there is nothing for it.
    """
    pending = {pod.uid: pod for pod in snapshot.pending}
    if any(pending[uid].gang for uid in new if uid in pending):
        return False
    demanded = (demand.pod.uid for demand in snapshot.demands.helpable)
    return not (news and any(uid not in new and uid not in snapshot.reservations for uid in demanded))


def costs_no_pod(snapshot: Snapshot, new: Collection[str], result: PlanningResult) -> bool:
    """Every new pod and every pod that had a place has one, and nothing that is there is destroyed."""
    if result.counts.partitions_destroyed or result.cut_short is not None:
        return False
    placed = {pod.uid for pod in result.placed}
    pending = {pod.uid for pod in snapshot.pending}
    return all(uid in placed for uid in (*new, *snapshot.reservations) if uid in pending)

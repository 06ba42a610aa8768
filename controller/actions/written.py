"""What a pass achieved, once its plans were written or not.

Takes the planner's result and the outcome of each write, returns the result without the pods that were placed on
partitions of a plan that was not written: these are unplaced, with the node and the API server's sentence. Pods on
partitions that exist or are under way stay placed, since the plan that makes them is the one in force.
"""

from collections.abc import Iterable
from dataclasses import replace

from controller.actions.plan_writer import Outcome, Written
from controller.model.reasons import UnplacedReason
from controller.model.results import Placed, PlanningResult, Supply, Unplaced


def as_written(result: PlanningResult, outcomes: Iterable[Outcome]) -> PlanningResult:
    """The result, as far as it came true."""
    failed = {outcome.node: outcome for outcome in outcomes if not outcome.in_force}
    lost = [pod for pod in result.placed if pod.supply is Supply.NEW and pod.node in failed]
    if not lost:
        return result
    without = {pod.uid for pod in lost}
    counts = result.counts
    return replace(
        result,
        placed=tuple(pod for pod in result.placed if pod.uid not in without),
        unplaced=(*result.unplaced, *(_unplaced(pod, failed[pod.node]) for pod in lost)),
        counts=replace(counts, placed_new=counts.placed_new - len(lost), unplaced=counts.unplaced + len(lost)),
    )


def _unplaced(pod: Placed, outcome: Outcome) -> Unplaced:
    """The next pass, which follows soon, plans around a node that was refused, or reports why none serves."""
    failed = "may not have been written" if outcome.written is Written.UNANSWERED else "was not written"
    message = f"The plan of node {pod.node} {failed} ({outcome.message}). This pod is planned again."
    return Unplaced(uid=pod.uid, key=pod.key, reason=UnplacedReason.CHANGE_UNDER_WAY, message=message)

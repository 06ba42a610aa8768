"""Takes a snapshot and returns the plan of one pass: changed layouts, placed pods, and why the other pods wait.

The planner searches for places, the explanation reads the board that it leaves, and the result is made of both. A pod
or a node whose planning raises an error is left out and named in the result, and the pass is made again without it; an
error that belongs to neither, or to every node of several, ends the pass as it is. Pure, and the same for the same
snapshot, byte for byte. A used partition is never touched, an unsettled or pinned GPU never changed, and a layout that
serves no pod never written.
"""

from collections.abc import Callable
from dataclasses import replace

from controller.explanation.explain import why_unplaced
from controller.explanation.filtered import NO_WORK_LEFT
from controller.model.results import NodeFailure, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planner.effort import Effort, never
from controller.planner.isolation import NodePlanningError
from controller.planner.result.outcome import outcome
from controller.planner.search import OnPhase, search
from controller.planner.set_aside import SetAside

__all__ = ["OnPhase", "plan"]


def plan(
    snapshot: Snapshot,
    options: PlannerOptions | None = None,
    on_phase: OnPhase | None = None,
    *,
    out_of_time: Callable[[], bool] = never,
) -> PlanningResult:
    """One pass; a node or pod whose planning raises an error is left out and named in the result.

    `out_of_time`: the last resort, where a pass takes too long all the same: what is placed by then is the plan.
    """
    effort = Effort(out_of_time=out_of_time)
    errors: dict[str, Exception] = {}
    aside = SetAside(snapshot)
    nodes = len(snapshot.nodes)
    while True:
        try:
            left_out = errors | aside.nodes
            effort.start(len(snapshot.pods) + len(snapshot.other_pods) + len(snapshot.pending))
            finished = search(aside.snapshot, options or PlannerOptions(), left_out.keys(), on_phase, effort)
            unplaced = why_unplaced(finished, out_of_time)
            if any(one.message == NO_WORK_LEFT.message for one in unplaced):
                effort.over()  # they read that the log says more, also where only their explanation had no time
            result = outcome(finished, (*unplaced, *aside.unplaced()))
        except NodePlanningError as failed:
            name, error = next(iter(failed.errors.items()))
            if aside.takes(error, name):
                continue
            if errors.keys() & failed.errors.keys() or (1 < nodes <= len(errors) + len(failed.errors)):
                raise error from None
            errors |= failed.errors
        except Exception as error:
            if not aside.takes(error):
                raise
        else:
            failures = tuple(NodeFailure.of(*one) for one in sorted(left_out.items()))
            return replace(
                result,
                failures=failures,
                pod_failures=aside.failures(),
                remarks=(*result.remarks, *effort.remarks()),
                cut_short=effort.cut_short,
            )

"""Takes a snapshot and returns the plan of one pass: changed layouts, placed pods, and why the other pods wait.

The planner searches for places, the explanation reads the board that it leaves, and the result is made of both. A node
whose planning raises an error is left out and named in the result, and the pass is made again without it; an error that
belongs to no node, or to every node of several, ends the pass as it is. Pure, and the same for the same snapshot, byte
for byte. A used partition is never touched, an unsettled or pinned GPU never changed, and a layout that serves no pod
never written.
"""

from dataclasses import replace

from controller.explanation.explain import why_unplaced
from controller.model.results import NodeFailure, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planner.isolation import NodePlanningError
from controller.planner.result.outcome import outcome
from controller.planner.search import OnPhase, search

__all__ = ["OnPhase", "plan"]


def plan(snapshot: Snapshot, options: PlannerOptions | None = None, on_phase: OnPhase | None = None) -> PlanningResult:
    """One pass; a node whose planning raises an error is left out and named in the result."""
    errors: dict[str, Exception] = {}
    nodes = len(snapshot.nodes)
    while True:
        try:
            finished = search(snapshot, options or PlannerOptions(), errors.keys(), on_phase)
            result = outcome(finished, why_unplaced(finished))
        except NodePlanningError as failed:
            if errors.keys() & failed.errors.keys() or (1 < nodes <= len(errors) + len(failed.errors)):
                raise next(iter(failed.errors.values())) from None
            errors |= failed.errors
        else:
            return replace(result, failures=tuple(NodeFailure.of(*one) for one in sorted(errors.items())))

"""Takes a snapshot and returns the plan of one pass: changed layouts, placed pods, and why the other pods wait.

The planner searches for places, the explanation reads the board that it leaves, and the result is made of both. A node
whose planning raises an error is left out, and the pass is made again without it. Pure, and the same for the same
snapshot, byte for byte. A used partition is never touched, an unsettled or pinned GPU never changed, and a layout that
serves no pod never written.
"""

from __future__ import annotations

from collections.abc import Collection

from controller.explanation.explain import why_unplaced
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planner.isolation import without_failed
from controller.planner.result.outcome import outcome
from controller.planner.search import Reporter, search

__all__ = ["Reporter", "plan"]


def plan(snapshot: Snapshot, options: PlannerOptions | None = None, reporter: Reporter | None = None) -> PlanningResult:
    """One pass; a node whose planning raises an error is left out and named in the result."""
    with_options = options or PlannerOptions()

    def attempt(failed: Collection[str]) -> PlanningResult:
        finished = search(snapshot, with_options, failed, reporter)
        return outcome(finished, why_unplaced(finished))

    return without_failed(attempt, len(snapshot.nodes))

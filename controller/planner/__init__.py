"""The planner: Snapshot and demands in, PlanningResult out. `plan` is all that others need; see `planning`.

Pure: no clock, no I/O, no random numbers but those of a fixed seed, and nothing that depends on the order of a set.
"""

from controller.planner.planning import plan

__all__ = ["plan"]

"""Explains why a pending pod waits, and what would help, from the board that the planner has finished.

`explain` goes through the questions, from what never fits to what nearly does; `causes` names the nodes and GPUs that
are left out of planning; the other modules answer one question each. Never changes the board or the plan.
"""

"""Finds places for pending pods: takes a snapshot, and returns a board on which they are placed, and the new layouts.

In the order of a pass: `inventory` says what is there, `board` is the mutable state, `placement`, `bound` and
`improvement` are the steps, `strategy` decides which step comes when, `search` runs them, `result` reads the finished
board. `controller.planning.plan` is all that others need.

Pure: no clock, no I/O, no random numbers, and nothing that depends on the order of a set.
"""

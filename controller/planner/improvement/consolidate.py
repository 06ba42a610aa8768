"""Consolidates: serves the same pods with fewer changed GPUs.

Takes the board and the placed assignments; afterwards as many are placed. A GPU whose newcomers all fit on GPUs that
change anyway is left as it was. Bounded by a count of trials, never by a clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Reach


def consolidate(board: Board, assignments: Sequence[Assignment], steps: int) -> bool:
    """Whether any pod was moved: that may let others in."""
    newcomers: dict[int, list[Assignment]] = {}
    devices: dict[int, Device] = {}
    for one in assignments:
        # Once each, however many partitions it takes there.
        cut = {id(device): device for device, part in one.taken if not part.ready}
        devices.update(cut)
        for key in cut:
            newcomers.setdefault(key, []).append(one)
    in_vain: set[Hashable] = set()
    moved = False
    for key in sorted(devices, key=lambda key: _emptiest_first(devices[key], newcomers[key])):
        members = [one for one in newcomers[key] if any(device is devices[key] for device, _ in one.taken)]
        if steps <= 0:
            return moved
        if members and devices[key].changed and not any(_kind(one) in in_vain for one in members):
            steps -= len(members)
            failed = _move(board, members)
            if failed is None:
                moved = True
            else:
                in_vain.add(_kind(failed))
    return moved


def _emptiest_first(device: Device, newcomers: Sequence[Assignment]) -> tuple[int, int, int, int]:
    """Few newcomers are moved most easily; of those, spare the GPUs that hold something idle."""
    return (len(newcomers), -device.tier, device.node, device.gpu)


def _kind(assignment: Assignment) -> Hashable:
    """Space on changed GPUs only shrinks, so what found none once will find none later (except for CPU that moved)."""
    return (assignment.wants, assignment.groups)


def _move(board: Board, members: Sequence[Assignment]) -> Assignment | None:
    """Move all or none; returns the pod that found no place."""
    before = [(one, *board.take_off(one)) for one in members]
    for position, assignment in enumerate(members):
        if not board.place(assignment, reach=Reach.CHANGED):
            for other in members[:position]:
                board.take_off(other)
            for moved, node, taken in reversed(before):
                board.put(moved, node, taken)
            return assignment
    return None

"""Serve the same pods with fewer changed GPUs.

In go the board and the placed asks, out comes a board on which as many stand: a GPU whose newcomers all find room on
GPUs that change anyway is left as it was. Bounded by a count of trials.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Reach


def consolidate(board: Board, asks: Sequence[Ask], steps: int) -> bool:
    """Whether anybody was moved: that leaves room for others."""
    newcomers: dict[int, list[Ask]] = {}
    devices: dict[int, Device] = {}
    for ask in asks:
        # Once each, however many partitions it takes there.
        cut = {id(device): device for device, part in ask.taken if not part.ready}
        devices.update(cut)
        for key in cut:
            newcomers.setdefault(key, []).append(ask)
    hopeless: set[Hashable] = set()
    moved = False
    for key in sorted(devices, key=lambda key: _emptiest_first(devices[key], newcomers[key])):
        members = [ask for ask in newcomers[key] if any(device is devices[key] for device, _ in ask.taken)]
        if steps <= 0:
            return moved
        if members and devices[key].changed and not any(_kind(ask) in hopeless for ask in members):
            steps -= len(members)
            failed = _move(board, members)
            if failed is None:
                moved = True
            else:
                hopeless.add(_kind(failed))
    return moved


def _emptiest_first(device: Device, newcomers: Sequence[Ask]) -> tuple[int, int, int, int]:
    """Few newcomers are moved most easily; of those, spare the GPUs that hold something idle."""
    return (len(newcomers), -device.tier, device.node, device.gpu)


def _kind(ask: Ask) -> Hashable:
    """Room on changed GPUs only shrinks, so what found none once will find none later (but for CPU that moved)."""
    return (ask.demand.wants, ask.groups)


def _move(board: Board, members: Sequence[Ask]) -> Ask | None:
    """Move all or nobody; returns the one that found no place."""
    before = [(ask, *board.take_off(ask)) for ask in members]
    for position, ask in enumerate(members):
        if not board.place(ask, reach=Reach.CHANGED):
            for other in members[:position]:
                board.take_off(other)
            for moved, node, taken in reversed(before):
                board.put_back(moved, node, taken)
            return ask
    return None

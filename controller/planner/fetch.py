"""Fetch all partitions of one ask from the devices of one node.

In go what the board knows of devices, an ask and a node, out come devices with what each gives, or None. Nothing is
taken yet, and CPU and memory are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from controller.planner.asks import Ask
from controller.planner.devices import Device, Entry, Fitting, Reach, Tier


class Devices(Protocol):
    """The part of the board that is looked at."""

    @property
    def devices(self) -> Sequence[Sequence[Device]]:
        """Per node."""

    @property
    def rank(self) -> Mapping[str, int]:
        """Resources, the hardest to place first."""


def on_node(board: Devices, ask: Ask, node: int, reach: Reach) -> list[tuple[Device, Fitting]] | None:
    """Choose devices for all partitions of an ask, hardest first, each where it costs least."""
    if ask.single is not None:
        best = _best_device(board, node, ask.single, {}, (), reach=reach)
        return None if best is None else [best]
    states: dict[int, int] = {}
    found: list[tuple[Device, Fitting]] = []
    for resource, count in sorted(ask.demand.wants, key=lambda want: board.rank[want[0]]):
        for _ in range(count):
            best = _best_device(board, node, resource, states, found, reach=reach)
            if best is None:
                return None
            states[id(best[0])] = best[1].after
            found.append(best)
    return found


def _best_device(
    board: Devices,
    node: int,
    resource: str,
    states: Mapping[int, int],
    found: Sequence[tuple[Device, Fitting]],
    *,
    reach: Reach,
) -> tuple[Device, Fitting] | None:
    """`states` and `found` are what the same ask takes already."""
    best: tuple[Device, Fitting] | None = None
    least: tuple[bool, Entry] | None = None
    for device in board.devices[node]:
        pool = device.pool
        if resource not in pool.serves:
            continue
        state = states.get(id(device), device.state) if states else device.state
        if device.ready:
            taken = sum(one is device and fitting.part.ready for one, fitting in found) if found else 0
            fitting = pool.fit_ready(device, state, resource, taken)
            if fitting is not None:
                cost = (False, pool.rate(fitting, device.key))
                if least is None or cost < least:
                    least, best = cost, (device, fitting)
        if pool.reach <= reach and (reach is Reach.NEW or device.key & 3 == Tier.CHANGED_ANYWAY):
            fitting = pool.fit(state, resource)
            if fitting is not None:
                cost = (not fitting.part.ready, pool.rate(fitting, device.key))
                if least is None or cost < least:
                    least, best = cost, (device, fitting)
    return best

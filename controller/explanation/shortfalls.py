"""What a node lacks for a request besides its GPUs.

Takes the request and what the best node has left. The first thing that is short is named, in the order in which most
nodes run short of it.
"""

from __future__ import annotations

from typing import NamedTuple

from controller.explanation.phrases import counted, cpus, gib
from controller.planner.board.assignment import Ask, Room


class Shortfall(NamedTuple):
    """What is short, what the pod requests of it, and what the node has left."""

    what: str
    requested: str
    left: str


def lacking(ask: Ask, room: Room) -> Shortfall | None:
    """None: nothing is short, and the pod is tried again in the next pass."""
    if room.cpu < ask.cpu:
        return Shortfall("CPU", cpus(ask.cpu), cpus(max(0, room.cpu)))
    if room.memory < ask.memory:
        return Shortfall("memory", gib(ask.memory), gib(max(0, room.memory)))
    if room.pods < 1:
        slots = counted(room.allocatable.get("pods", 0), "pod slot")
        return Shortfall("pod slots", "1 pod slot", f"none of its {slots}")
    for resource, amount in ask.demand.needs.other:
        free = room.allocatable.get(resource, 0) - room.usage.held[resource]
        if amount > free:
            return Shortfall(resource, f"{amount} {resource}", f"{max(0, free)} {resource}")
    if not ask.demand.pod.host_ports:
        return None
    ports = ", ".join(sorted({f"{port.protocol} {port.port}" for port in ask.demand.pod.host_ports}))
    return Shortfall("free host ports", f"the host ports {ports}", "not all of these host ports")

"""What a node lacks for an ask beside its GPUs, with the numbers.

In go the ask and what the node has left, out comes a clause. The first thing that is short is named, in the order in
which most nodes run short of it.
"""

from __future__ import annotations

from controller.planner.asks import Ask, Room
from controller.planner.wording import cores, gib


def lacking(ask: Ask, room: Room) -> str:
    if room.cpu < ask.cpu or room.memory < ask.memory:
        return (
            f"{cores(max(0, room.cpu))} and {gib(max(0, room.memory))} are free there, "
            f"the pod asks {cores(ask.cpu)} and {gib(ask.memory)}"
        )
    if room.pods < 1:
        return f"its {room.allocatable.get('pods', 0)} pod slots are used up"
    requested = room.usage.requested
    for resource, amount in ask.demand.other:
        free = room.allocatable.get(resource, 0) - requested.get(resource, 0)
        if amount > free:
            return f"{max(0, free)} of {resource} are free there, the pod asks {amount}"
    if not ask.demand.pod.host_ports:
        return "nothing was found to take its place there: it is tried again in the next pass"
    ports = ", ".join(sorted({f"{port.protocol} {port.port}" for port in ask.demand.pod.host_ports}))
    return f"a pod there has one of its host ports ({ports})"

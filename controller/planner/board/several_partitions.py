"""Finds the devices of a node that give a pod its partitions.

They come from one node, and from as many of its GPUs as need be, the hardest first, each where it costs least. Never
assigns anything.
"""

from collections.abc import Mapping, Sequence

from controller.model.demand import Demand, Wants
from controller.planner.board.assignment import Taken
from controller.planner.board.devices import Device, Entry, Fitting, Reach

Found = list[tuple[Device, Fitting]]


def on_node(devices: Sequence[Device], demand: Demand, rank: Mapping[str, int], reach: Reach) -> Found | None:
    """Choose devices of a node for all partitions of a pod, hardest first by `rank`, each where it costs least."""
    if demand.single is not None:
        best = _best_device(devices, demand.single, {}, (), reach=reach)
        return None if best is None else [best]
    if not may_give(devices, demand.wants, reach):
        return None
    found = _one_by_one(devices, demand, rank, reach=reach)
    if found is None and reach is Reach.NEW and any(device.ready and device.pool.placed for device in devices):
        return _one_by_one(devices, demand, rank, reach=reach, keep=False)  # idle partitions may lie in the way
    return found


def may_give(devices: Sequence[Device], wants: Wants, reach: Reach) -> bool:
    """Whether there could be as many of each, if nothing else were requested: quick, for pods may request hundreds."""
    for resource, count in wants:
        for device in devices:
            pool, state = device.pool, device.state
            if count <= 0 or resource not in pool.serves:
                continue
            if pool.reach <= reach or pool.fit_ready(device, state, resource, 0):
                count -= pool.most(state, resource)  # noqa: PLW2901  # what is still lacking
        if count > 0:
            return False
    return True


def _one_by_one(
    devices: Sequence[Device], demand: Demand, rank: Mapping[str, int], *, reach: Reach, keep: bool = True
) -> Found | None:
    states: dict[int, int] = {}
    found: Found = []
    for resource, count in sorted(demand.wants, key=lambda want: rank[want[0]]):
        for _ in range(count):
            best = _best_device(devices, resource, states, found, reach=reach, keep=keep)
            if best is None:
                return None
            states[id(best[0])] = best[1].after
            found.append(best)
    return found


def _best_device(
    devices: Sequence[Device],
    resource: str,
    states: Mapping[int, int],
    found: Sequence[tuple[Device, Fitting]],
    *,
    reach: Reach,
    keep: bool = True,
) -> tuple[Device, Fitting] | None:
    """`states` and `found` are what the same pod takes already. `keep`: of GPUs that may be cut, what is idle first."""
    best: tuple[Device, Fitting] | None = None
    least: tuple[bool, Entry] | None = None
    for device in devices:
        pool = device.pool
        if resource not in pool.serves:
            continue
        state = states.get(id(device), device.state) if states else device.state
        options = [pool.fit(state, resource)] if pool.reach <= reach else []
        if keep and resource in device.ready:
            taken = sum(one is device and fitting.part.ready for one, fitting in found) if found else 0
            options.insert(0, pool.fit_ready(device, state, resource, taken))
        for fitting in options:
            cost = fitting and (not fitting.part.ready, pool.rate(fitting, device.key))
            if fitting and cost and (least is None or cost < least):
                least, best = cost, (device, fitting)
    return best


def taken_of(found: Found) -> Taken:
    """Without what it costs."""
    return [(device, fitting.part) for device, fitting in found]

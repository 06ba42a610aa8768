"""Why no whole GPU is to be had: who has the GPUs that could be.

In go the nodes that the scheduler allows, out comes one reason with the numbers. A GPU that has somebody's partitions,
or is held whole, comes free by itself; one in MIG mode does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.demand import Wants
from controller.planner.inventory import Closed, Cut, GpuStock, NodeStock
from controller.planner.wording import counted, listed
from controller.reasons import UnplacedReason
from partitioning.resources import WHOLE

_IN_USE = "in use whole"
_CUT = "cut, with partitions in use"
_MIG = "in MIG mode"
_CLOSED = "left out of planning"
_TAKEN = "given to pods that are served before it"


def about_whole_gpus(wants: Wants, stocks: Iterable[NodeStock]) -> tuple[UnplacedReason, str]:
    count = dict(wants)[WHOLE]
    found: Counter[str] = Counter()
    holders: set[str] = set()
    nodes = 0
    for stock in stocks:
        nodes += 1
        if stock.gpus:
            found.update(_use_of(gpu) for gpu in stock.gpus)
            holders.update(part.pod for gpu in stock.gpus for part in gpu.staying if part.pod)
        else:
            found[_IN_USE] += max(stock.node.gpu_count, stock.node.allocatable.get(WHOLE, 0))
    told = ", ".join(f"{found[use]} {use}" for use in (_IN_USE, _CUT, _MIG, _CLOSED, _TAKEN) if found[use])
    message = f"{count} x {WHOLE} on one node: of the GPUs of {counted(nodes, 'node')}, {told}"
    if found[_IN_USE] or found[_CUT]:
        whose = f" by {listed(sorted(holders))}" if holders else ""
        return UnplacedReason.WAITS_FOR_RELEASE, f"{message}: wait for a release{whose}, or add a node"
    if found[_TAKEN]:
        return UnplacedReason.NO_CAPACITY, f"{message}: add a node, or wait"
    return UnplacedReason.BLOCKED, f"{message}: disable MIG mode on a GPU (nvidia-smi -mig 0), or add a node"


def held_whole(gpu: GpuStock) -> str:
    """How a GPU that is left out for that is held, as said after 'it', with the remedy."""
    whole = [part for part in gpu.staying if part.resource == WHOLE]
    if any(part.held for part in whole):
        names = sorted({part.pod for part in whole if part.pod})
        return f"is held whole by {listed(names) or 'a pod'}: wait for its release, or add a node"
    if any(part.state == "Unknown" for part in whole):
        return "may be held whole, whether it is in use is not known: see status.gpus of its plan, or add a node"
    return "may be held whole by a pod of its node: wait for its release, or add a node"


def _use_of(gpu: GpuStock) -> str:
    if gpu.closed is Closed.HELD_WHOLE or any(part.resource == WHOLE for part in gpu.staying):
        return _IN_USE
    if gpu.staying:
        return _CUT
    if gpu.cut is Cut.MIG:
        # A GPU without MIG that waits for its MIG mode is offered whole meanwhile, so somebody has it.
        return _IN_USE if gpu.closed is Closed.MIG_MODE_DISABLED else _MIG
    return _TAKEN if gpu.closed is None else _CLOSED

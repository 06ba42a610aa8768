"""Why no whole GPU is free: what the GPUs are used for.

Takes the nodes that the scheduler allows, returns one answer with the numbers. A GPU that is partitioned and in use, or
in use as a whole, comes free by itself; one that is pinned, on a paused node, or in MIG mode does not.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from controller.explanation.causes import Cause
from controller.explanation.phrases import Answer, listed
from controller.explanation.remedies import WAIT_FOR_RELEASE, nearest
from controller.model.demand import Wants
from controller.model.reasons import UnplacedReason
from controller.model.views import MigDesired, MpsDesired, WholeDesired
from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock
from partitioning.resources import WHOLE

_IN_USE = "in use"
_CUT = "partitioned and in use"
_MIG = "in MIG mode"
_CLOSED = "excluded from planning"
_TAKEN = "reserved for pods ahead in the queue"
_WHOLE_WITHOUT_MIG = (
    Ineligible.CHANGING,
    Ineligible.MIG_MODE_ENABLED,
    Ineligible.NO_MIG_PLACEMENTS,
    Ineligible.UNKNOWN_MODEL,
)
"""These keep no GPU from being whole once its MIG mode is off."""


def about_whole_gpus(wants: Wants, stocks: Iterable[NodeStock], causes: Sequence[Cause]) -> Answer:
    """`causes`: why GPUs of these nodes are left out of planning."""
    count = dict(wants)[WHOLE]
    by_node: list[Counter[str]] = []
    holders: set[str] = set()
    for stock in stocks:
        by_node.append(Counter(_use_of(gpu) for gpu in stock.gpus))
        awaited = (gpu for gpu in stock.gpus if _use_of(gpu) in (_IN_USE, _CUT))
        holders.update(part.pod for gpu in awaited for part in gpu.retained if part.pod)
        if not stock.gpus:
            by_node[-1][_IN_USE] = max(stock.node.gpu_count, stock.node.allocatable.get(WHOLE, 0))
    found = sum(by_node, Counter[str]())
    uses = [use for use in (_IN_USE, _CUT, _MIG, _CLOSED, _TAKEN) if found[use]]
    counts = ", ".join(f"{found[use]} {'is' if found[use] == 1 else 'are'} {use}" for use in uses)
    if count > 1:  # too few of them
        counts = counts.replace(_TAKEN, f"free or {_TAKEN}")
    free = "No whole GPU is free" if count == 1 else f"No node has {count} whole GPUs free"
    detail = f"In use by {listed(sorted(holders))}." if holders else ""
    enough = [node for node in by_node if node[_IN_USE] + node[_CUT] + node[_TAKEN] >= count]
    if any(node[_IN_USE] or node[_CUT] for node in enough):
        reason, remedy = UnplacedReason.WAITS_FOR_RELEASE, "The pod starts when enough are released; or add a GPU node."
    elif enough:
        reason, remedy = UnplacedReason.NO_CAPACITY, "Wait, or add a GPU node."
    elif any(node.total() - node[_CLOSED] >= count for node in by_node):
        reason = UnplacedReason.BLOCKED
        remedy = "Ask an administrator to turn MIG mode off on a GPU (docs/mig.md), or to add a GPU node."
    else:
        others = (Ineligible.MIG_MODE_ENABLED, *WAIT_FOR_RELEASE)
        reason, remedy, _ = nearest([cause for cause in causes if cause.ineligible not in others])
    return Answer(reason, f"{free}: {counts}. {remedy}", detail)


def _use_of(gpu: GpuStock) -> str:
    why, desired = gpu.ineligible, gpu.view.desired
    if gpu.view.pinned and not isinstance(desired, WholeDesired):
        return _CLOSED  # no release makes it whole
    if why in (Ineligible.HELD_WHOLE, Ineligible.USE_UNKNOWN) or any(part.resource == WHOLE for part in gpu.retained):
        return _IN_USE
    uncut = not (gpu.view.mig_enabled or gpu.view.partitions or isinstance(desired, MigDesired | MpsDesired))
    if why is Ineligible.MIG_MODE_DISABLED or (why is not None and uncut):
        return _IN_USE  # nothing is planned there, so it is advertised whole, and a pod has it
    if gpu.view.mig_enabled and why in (None, *WAIT_FOR_RELEASE, *_WHOLE_WITHOUT_MIG):
        return _MIG  # no release makes it whole
    if why not in (None, *WAIT_FOR_RELEASE, Ineligible.CHANGING):
        return _CLOSED
    if gpu.retained:
        return _CUT
    return _TAKEN if why is None else _CLOSED

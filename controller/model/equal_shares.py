"""What a GPU is shared into whether or not a pod waits: equal MPS replicas, or units of ACK's memory.

Takes what holds for a node and one of its GPUs, returns what the GPU is to become, or None where pending pods decide.
kube-scheduler must see such devices before any pod that requests them is bound, so they are planned beforehand. What
people pin is never asked about, and a GPU whose MIG mode is on is never shared.
"""

from collections.abc import Iterable

from controller.model.views import Desired, GpuView, MpsDesired, NodeView, PlanView
from crds.v1alpha1.names import GpuState
from partitioning.mps import MIB_PER_GIB, REPLICA, replicas_of, shareable_mib, units_of_gib
from partitioning.resources import ACK_MEMORY, SHARED


def equal_shares(node: NodeView, gpu: GpuView, *, replicas: int, ack_units: bool) -> MpsDesired | None:
    """`replicas`: on nodes without a label of their own; 0: none. `ack_units`: ACK's label means units."""
    if gpu.model is None:
        return None
    if node.mps_replicas is None and node.shared_by_gib and ack_units:
        return MpsDesired(slices=units_of_gib(shareable_mib(gpu.model.memory_mib) // MIB_PER_GIB))
    count = replicas if node.mps_replicas is None else node.mps_replicas
    return MpsDesired(slices=replicas_of(gpu.model.memory_mib, count)) if count else None


def shares_resource(node: NodeView, *, replicas: int, ack_units: bool) -> str | None:
    """What pods request of such shares, under their default name; None where pending pods decide."""
    if node.mps_replicas is None and node.shared_by_gib and ack_units:
        return ACK_MEMORY
    return SHARED if (replicas if node.mps_replicas is None else node.mps_replicas) else None


def most_units(plans: Iterable[PlanView]) -> int:
    """GiB of the GPU that has most of ACK's resource; 0 where none is planned."""
    return max((_units(gpu.desired) for plan in plans for gpu in plan.gpus), default=0)


def _units(desired: Desired | None) -> int:
    if not isinstance(desired, MpsDesired):
        return 0
    return sum(share.resource == ACK_MEMORY for share in desired.slices)


def is_same(desired: Desired, shares: MpsDesired) -> bool:
    """Whether an item requests these shares already, under whatever name its node gives to replicas."""
    return isinstance(desired, MpsDesired) and _form(desired) == _form(shares)


def refused_shares(gpu: GpuView) -> bool:
    """Its agent could not make the equal shares of its item, as where MPS serves fewer clients."""
    if gpu.state != GpuState.FAILED or gpu.pinned or not isinstance(gpu.desired, MpsDesired):
        return False
    return any(share.label == REPLICA or share.resource == ACK_MEMORY for share in gpu.desired.slices)


def _form(desired: MpsDesired) -> tuple[int, frozenset[str]]:
    kinds = {REPLICA if s.label == REPLICA else s.resource for s in desired.slices}
    return len(desired.slices), frozenset(kinds)

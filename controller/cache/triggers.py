"""Decides which changes of the cluster are worth a planning pass, by comparing two readings.

Takes the old and the new view of one pod, node or plan and returns whether planning could now come to another result.
Noise (heartbeats, conditions, our own nominations, our own plans) compares as equal, so that a pass never starts the
next one. Keeps nothing and does no I/O.
"""

from collections.abc import Collection
from dataclasses import replace

from controller.model.equal_shares import equal_shares, is_same, refused_shares, shares_resource
from controller.model.views import GpuView, MigDesired, NodeView, PlannerOptions, PlanView, PodView
from crds.v1alpha1.names import Mode, Partitioning
from partitioning.resources import ACK_MEMORY, SHARED, WHOLE, classify, is_misnamed


def same_request(old: PodView, new: PodView) -> bool:
    """Nothing changed that matters for placing the pod; whose nomination it carries matters, ours does not."""
    return _without_ours(old) == _without_ours(new)


def _without_ours(pod: PodView) -> PodView:
    if pod.nomination_ours:
        return replace(pod, nominated_node="", nomination_ours=False)
    return pod


def counts_differently(old: PodView, new: PodView) -> bool:
    """Constraints of other pods may count this bound pod otherwise than before; terminating ones do not spread."""
    return (old.labels, old.deleting) != (new.labels, new.deleting)


def preempts_on(pod: PodView) -> str:
    """Node on which its scheduler evicts others for this pending pod, so that planning counts it there; '' for none."""
    return "" if pod.node or pod.deleting or pod.nomination_ours else pod.nominated_node


def has_gpus(node: NodeView) -> bool:
    """Planning needs this node: it is enabled, or could be named in a reason."""
    return (
        node.partitioning is not None
        or bool(node.product)
        or node.gpu_count > 0
        or node.allocatable.get(WHOLE, 0) > 0
        or any(classify(name) is not None or is_misnamed(name) for name in node.allocatable if "/" in name)
    )


def odd_names(node: NodeView | None, options: PlannerOptions) -> frozenset[str]:
    """Resources that make an unknown-looking request valid: foreign ones named like partitions, and equal shares."""
    if node is None:
        return frozenset()
    there = frozenset(name for name in node.allocatable if name in (SHARED, ACK_MEMORY) or is_misnamed(name))
    if node.partitioning not in (Partitioning.MPS, Partitioning.AUTO):
        return there
    coming = shares_resource(node, replicas=options.mps_replicas, ack_units=options.ack_units)
    return there if coming is None else there | {coming}


def capacity_changed(old: PlanView | None, new: PlanView | None, *, ours: Collection[int]) -> bool:
    """Partitions came, went, were freed, taken or passed to another pod, or users changed the plan.

    `ours` are indexes whose item we have just written: that they are unsettled now is no news.
    """
    if old is None or new is None:
        return old is not new
    if _switches(old) != _switches(new):
        return True
    before = {gpu.index: _contents(gpu) for gpu in old.gpus if gpu.index not in ours}
    return before != {gpu.index: _contents(gpu) for gpu in new.gpus if gpu.index not in ours}


def _switches(plan: PlanView) -> tuple[object, ...]:
    by_people = (plan.mode, plan.paused, plan.relabels, plan.by_nvidia)
    return (plan.uid, by_people, plan.node_uid, plan.agent_alive, plan.write_refused)


def _contents(gpu: GpuView) -> tuple[object, ...]:
    return (
        gpu.uuid,
        gpu.model,
        gpu.mig_enabled,
        gpu.settled,
        gpu.under_way,
        gpu.backing_off,
        gpu.pinned,
        gpu.desired,
        tuple((partition.resource, partition.id, partition.state, partition.pod) for partition in gpu.partitions),
    )


def lacks_held(plan: PlanView) -> bool:
    """A partition in use is missing from what we planned: it must be put back, whether or not a pod is pending."""
    if plan.mode != Mode.AUTO or plan.paused:
        return False
    return any(_lacks_held(gpu) for gpu in plan.gpus if not gpu.pinned)


def shares_due(node: NodeView | None, plan: PlanView | None, options: PlannerOptions) -> bool:
    """A GPU is to be shared in other equal parts than its item says: planned whether or not a pod is pending."""
    if node is None or plan is None or not plan.agent_alive or plan.mode != Mode.AUTO or plan.paused:
        return False
    if node.partitioning not in (Partitioning.MPS, Partitioning.AUTO):
        return False
    free = (gpu for gpu in plan.gpus if not (gpu.pinned or gpu.mig_enabled or gpu.used))
    return any(_share_due(node, gpu, options) for gpu in free if gpu.settled or refused_shares(gpu))


def _share_due(node: NodeView, gpu: GpuView, options: PlannerOptions) -> bool:
    shares = equal_shares(node, gpu, replicas=options.mps_replicas, ack_units=options.ack_units)
    if shares is None:
        return refused_shares(gpu)
    return gpu.desired is None or not is_same(gpu.desired, shares)


def _lacks_held(gpu: GpuView) -> bool:
    if not isinstance(gpu.desired, MigDesired):
        return False
    planned = {(instance.profile, instance.start) for instance in gpu.desired.layout}
    return any(p.held and p.profile and (p.profile, p.start) not in planned for p in gpu.partitions)

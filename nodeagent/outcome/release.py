"""Decides whether a node that is not enabled any more can be handed back, and what it waits for until then.

Takes what a pass observed and did, returns a `Release`. A node is handed back when each of its devices left the
kubelet's list and is free by every witness that was read after that, and no pod holds any other GPU device on it, so
that another device plugin may give them out. Unknown counts as in use. Pure.
"""

from collections.abc import Iterator

from crds.v1alpha1.names import LABEL_MPS_DAEMONS, LABEL_NODE_AGENT, LABEL_PARTITIONING, Reason
from nodeagent.outcome.gpu_outcome import NAMED_HOLDERS, holders, waiting_reason
from nodeagent.outcome.pass_result import PassWork, Release

ENABLED = Release(reason=Reason.IDLE, message="")


def release(work: PassWork) -> Release:
    """How far the node is on its way out of gpuplan."""
    observation, node = work.observation, work.observation.readings.node
    if node is None or not work.desired.disabled:
        return ENABLED
    if observation.driver_problem is not None:
        why = f"whether pods use GPUs of this node is not known: {observation.driver_problem}"
        return _waits(Reason.USE_UNKNOWN, why)
    if unread := [gpu for gpu in observation.gpus if not gpu.uuid]:
        why = "; ".join(f"GPU {gpu.index}: {gpu.problem}" for gpu in unread)
        return _waits(Reason.USE_UNKNOWN, f"whether pods use a GPU that cannot be read is not known: {why}")
    waiting = [(index, change) for index, change in sorted(work.changes.items()) if change.blocking]
    in_the_way = [f"GPU {index}: {holders(change)}" for index, change in waiting]
    # NVIDIA's plugin goes on serving them.
    others = [] if work.desired.by_nvidia else list(_others(work))
    if in_the_way or others:
        used = bool(others) or any(waiting_reason(change) is Reason.WAITING_FOR_RELEASE for _, change in waiting)
        more = f"and {len(others) - NAMED_HOLDERS} more pods" if len(others) > NAMED_HOLDERS else ""
        sentences = filter(None, [*in_the_way, *others[:NAMED_HOLDERS], more])
        return _waits(Reason.WAITING_FOR_RELEASE if used else Reason.USE_UNKNOWN, "; ".join(sentences))
    if node.changing or any(change.unreleased for change in work.changes.values()):
        return _waits(Reason.WITHDRAWING, "the kubelet or the Node still lists devices, which are being withdrawn")
    if node.mps_daemons:
        return _waits(Reason.WITHDRAWING, f"the node has MPS daemons, which end now (label {LABEL_MPS_DAEMONS})")
    return Release(
        reason=Reason.NODE_DISABLED,
        message="No pod holds a device of this node or can get one: agent and device plugin leave it, and others may "
        f"use its GPUs. Set the label {LABEL_PARTITIONING} to enable it again.",
        disabled=True,
        done=True,
    )


def _waits(reason: Reason, why: str) -> Release:
    return Release(
        reason=reason,
        message="The node is not enabled any more, and is handed back when no pod holds a device of it; "
        f"{why}. To hand it back at once, whatever runs on it, remove its label {LABEL_NODE_AGENT}.",
        disabled=True,
    )


def _others(work: PassWork) -> Iterator[str]:
    """Pods with a device that exists on no GPU now, or that another device plugin gave out."""
    ours = [partition for change in work.changes.values() for partition in change.withdraw]
    for device_id, pod in sorted(work.observation.usage.held.items()):
        if not any(partition.used_through(device_id) for partition in ours):
            yield f"pod {pod} holds {device_id}"

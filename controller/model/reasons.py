"""Why a pending pod gets nothing in this pass: a closed set, one reason per pod.

The values are what users see as an Event's reason and in `gpuplan` output; the sentence that follows them (numbers,
names, remedy) is made by `controller.explanation.explain`. `in_flight` is whether waiting alone may resolve it.
"""

from enum import StrEnum


class UnplacedReason(StrEnum):
    NEVER_FITS = "NeverFits"
    """No GPU of this cluster could hold it, even empty. Remedy: request what the message lists, or add such a GPU."""
    WAITS_FOR_RELEASE = "WaitsForRelease"
    """It would fit if partitions in use were released. Remedy: wait, or add a GPU node."""
    FRAGMENTED = "Fragmented"
    """Enough capacity is free, but not in one piece, or not where the profile may start. Remedy: wait until the pods
    that the controller's `/decisions` names end, or move them."""
    NO_CAPACITY = "NoCapacity"
    """Pods ahead of it in the queue get the room that suitable GPUs have, or a GPU is drained for one of them. Remedy:
    wait, or add a GPU node."""
    NO_NODE_RESOURCES = "NoNodeResources"
    """The GPUs have room, but CPU, memory, pods or ports of their nodes do not. Remedy: request less, or free what the
    message names."""
    BLOCKED = "Blocked"
    """Suitable GPUs are there, but a policy, pin, pause, mode or a missing label prevents changing them. Remedy: change
    what the message names, or ask its owner to."""
    MIG_MODE_DISABLED = "MIGModeDisabled"
    """Suitable GPUs are there, but their MIG mode is off. Remedy: [work on the driver](operating.md#work-on-the-driver)
    with the `nvidia-smi` command of the message."""
    FILTERED_BY_SCHEDULER = "FilteredByScheduler"
    """Suitable GPUs are there, but a taint, selector, affinity or cordon keeps the pod off their nodes. Remedy: add a
    toleration, or change the selector; uncordon the node."""
    GANG_WAITS = "GangWaits"
    """Its gang starts whole or not at all, and there is not enough room, or too few of its pods exist. Remedy: create
    the missing pods, or free room for the whole gang."""
    NOT_SERVED = "NotServed"
    """gpuplan does not serve this kind of request. Remedy: request what the message names."""
    SCHEDULING_GATED = "SchedulingGated"
    """It has scheduling gates, so no scheduler handles it yet. Remedy: none: who set the gate, such as Kueue, removes
    it."""
    PREEMPTING = "Preempting"
    """A scheduler has nominated it to a node: it evicts pods there, or is about to bind it. Remedy: wait."""
    CHANGE_UNDER_WAY = "ChangeUnderWay"
    """GPUs that could serve it are being changed; the pod is reconsidered when they have settled. Remedy: wait."""
    AWAITING_AGENT = "AwaitingAgent"
    """A suitable node's agent has not reported yet, is checking what is in use, or has stopped responding. Remedy:
    wait; if it lasts, an administrator checks the agent's pod."""

    @property
    def in_flight(self) -> bool:
        """True where something that is already going on may serve the pod without further action."""
        return self in (UnplacedReason.CHANGE_UNDER_WAY, UnplacedReason.AWAITING_AGENT, UnplacedReason.PREEMPTING)

    @property
    def routine(self) -> bool:
        """True where nothing is wrong: the next step belongs to another component, as planned."""
        return self in (
            UnplacedReason.SCHEDULING_GATED,
            UnplacedReason.PREEMPTING,
            UnplacedReason.CHANGE_UNDER_WAY,
        )

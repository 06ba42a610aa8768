"""Why a pending pod gets nothing in this pass: a closed set, one reason per pod.

The values are what users see as an Event's reason and in `gpuplan` output; the sentence that follows them (numbers,
names, remedy) is made by `controller.explanation.explain`. `in_flight` is whether waiting alone may resolve it.
"""

from enum import StrEnum


class UnplacedReason(StrEnum):
    NEVER_FITS = "NeverFits"
    """No GPU of this cluster could hold it, even empty."""
    WAITS_FOR_RELEASE = "WaitsForRelease"
    """It would fit if partitions in use were released."""
    FRAGMENTED = "Fragmented"
    """Enough capacity is free, but not contiguously on one GPU."""
    NO_CAPACITY = "NoCapacity"
    """Everything suitable is full: it needs another node."""
    NO_NODE_RESOURCES = "NoNodeResources"
    """The GPUs have room, but CPU, memory, pods or ports of their nodes do not."""
    BLOCKED = "Blocked"
    """Suitable GPUs are there, but a policy, pin, pause, mode or a missing label keeps us off them."""
    MIG_MODE_DISABLED = "MIGModeDisabled"
    """Suitable GPUs are there, but their MIG mode is off."""
    FILTERED_BY_SCHEDULER = "FilteredByScheduler"
    """Suitable GPUs are there, but a taint, selector, affinity or cordon keeps the pod off their nodes."""
    GANG_WAITS = "GangWaits"
    """Its gang starts whole or not at all, and there is no room, or there are not enough pods, for the whole."""
    NOT_SERVED = "NotServed"
    """gpuplan does not serve this kind of request."""
    SCHEDULING_GATED = "SchedulingGated"
    """It has scheduling gates, so no scheduler tries it yet."""
    PREEMPTING = "Preempting"
    """A scheduler has nominated it to a node and is evicting pods there."""
    CHANGE_UNDER_WAY = "ChangeUnderWay"
    """GPUs that might serve it are being changed now; it is planned again when they have settled."""
    AWAITING_AGENT = "AwaitingAgent"
    """A suitable node's agent has not reported yet, is checking what is in use, or has stopped responding."""

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

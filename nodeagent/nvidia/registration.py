"""Heals a registration of NVIDIA's device plugin that the kubelet has lost: the plugin serves, and nothing calls it.

A plugin that registers again before the kubelet has seen the end of its old stream loses the new one, and never learns
of it. Takes one moment of a node whose plugin has loaded its config; returns a stage while the registration may be
lost, and signals the plugin once that is proved: the kubelet has dropped the resource, so that the Node's capacity,
which counts Unhealthy devices too, is 0, and the kubelet wrote that when it must have known of a plugin that it has
registered. Must never signal a plugin whose devices are Unhealthy, for a signal would make them look healthy, nor one
that was confirmed since it started, nor while anything is, or may be, in use.
"""

from collections.abc import Callable

from crds.v1alpha1.names import Reason
from nodeagent.advertise.confirm import Stage
from nodeagent.advertise.taint import NodeGuard
from nodeagent.durations import Durations
from nodeagent.nvidia.signals import PLUGIN, SIGNALS, Signals
from nodeagent.nvidia.switch_inputs import Inputs
from nodeagent.observed.pods import NodePod

TAINT_SECONDS = 3.0
"""Pods that the scheduler was about to bind are bound, and in our watch, after that."""
DROPPED_SECONDS = 30.0
"""Three of the kubelet's status ticks: a capacity of 0 that it writes so long after the plugin began to serve, and that
we see for so long, is not one from before it registered. The time of a write is the node's, which people may set."""
ALLOWED_SECONDS = 500.0
"""The kubelet counts the devices of a plugin that is gone for 300 s. Where they were none, as after our own plugin, it
writes the Node again after up to 450 s; then ticks, and the time to be sure."""
Place = tuple[str, str]
"""Pod UID and key."""


class LostRegistration:
    """Call `heal` in each pass in which the plugin serves, and was not confirmed since it started."""

    def __init__(self, guard: NodeGuard, signals: Signals, durations: Durations, clock: Callable[[], float]) -> None:
        self._guard, self._signals, self._durations, self._clock = guard, signals, durations, clock
        self._since: dict[Place, float] = {}
        """Since when the kubelet was to drop it, whatever came in between: the node may be tainted meanwhile."""
        self._ended: dict[Place, str] = {}
        """Why an administrator must act: for that the node is not tainted again."""

    def heal(self, now: Inputs, plugin: NodePod, key: str, served_ns: int) -> Stage | None:
        """None where the registration is not lost, as far as is known. `served_ns`: when the plugin made its socket."""
        if not now.forgotten:
            return None
        place = plugin.uid, key
        if ended := self._ended.get(place) or self._attempt(now, place, served_ns):
            self._ended[place] = ended
            message = f"NVIDIA's device plugin serves, and the kubelet lists none of its devices: {ended}"
            message += f" (pod {plugin.title})"
            return Stage(reason=Reason.ADVERTISE_TIMEOUT, message=message, failed=True)
        message = (
            "NVIDIA's device plugin serves, and the kubelet lists none of its devices: if it has lost the "
            "registration, it drops them within five minutes, and the plugin is signalled then"
        )
        return Stage(reason=Reason.ADVERTISING, message=message)

    def forget(self) -> None:
        """Another key is requested, or this one was confirmed."""
        self._since.clear()
        self._ended.clear()

    def _attempt(self, now: Inputs, place: Place, served_ns: int) -> str:
        """Signal the plugin if everything is proved; returns why nothing more is tried."""
        since = self._since.setdefault(place, self._clock())
        # A kubelet that does not reach the API server may have registered it since.
        written = now.node.reported_at >= served_ns / 1e9 + DROPPED_SECONDS
        if self._clock() - since >= ALLOWED_SECONDS:
            return _too_late(now, written=written)
        if now.dropped:
            self._guard.close(now.node)  # until then its GPUs draw no pod, and other pods may come
        tainted = now.node.changing and self._durations.seconds("tainted to heal", *place) >= TAINT_SECONDS
        dropped = now.dropped and self._durations.seconds("dropped", str(served_ns)) >= DROPPED_SECONDS
        if not (tainted and dropped and written):
            return ""
        if self._signals.sent(*place) >= SIGNALS:
            return f"it has lost the registration, and {SIGNALS} signals had no effect: delete the pod"
        if why := self._signals.send(place[0], PLUGIN, place[1]):
            return f"it has lost the registration, and {why}: delete the pod"
        del self._since[place]
        return ""


def _too_late(now: Inputs, *, written: bool) -> str:
    if not now.dropped:
        return "it still counts them, so they are Unhealthy: read the log of the pod"
    if written:
        return "it has lost the registration, and the plugin could not be signalled in time: delete the pod"
    return (
        "whether it has lost the registration is not known, for the kubelet has not written the Node since the plugin "
        "began to serve: check that the kubelet reaches the API server, then delete the pod"
    )

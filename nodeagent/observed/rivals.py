"""Decides whether another device plugin, or a DRA driver, serves this node's GPUs.

One that is known by its pod or socket counts at once: unshared, its ids are the very same as ours, and the kubelet's
answers would show no difference. Any other is known by ids that our plugin does not list. Two plugins on one resource
throw each other out every few seconds, and the kubelet shows the ids of either in turn: so the age is kept per
resource, whatever the ids are, and only a resource without foreign ids for the whole deadline is no longer contested.
Writes nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from nodeagent.hardware.gpu_ids import DRA_DRIVER


class Contest:
    def __init__(self, clock: Callable[[], float], *, deadline_seconds: float) -> None:
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._sightings: dict[str, tuple[float, float]] = {}
        """When foreign ids were observed first and last, by resource."""

    def record(self, registered: Mapping[str, Collection[str]], ours: Collection[str]) -> None:
        """Record what the kubelet shows; `ours` are the ids that it can have from our plugin now."""
        now = self._clock()
        for resource, ids in registered.items():
            if not set(ids) <= set(ours):
                self._sightings[resource] = (self._sightings.get(resource, (now, now))[0], now)

    def resources(self) -> tuple[str, ...]:
        """The contested ones."""
        now, deadline_seconds = self._clock(), self._deadline_seconds
        self._sightings = {name: at for name, at in self._sightings.items() if now - at[1] <= deadline_seconds}
        # An older list of our own may still be on its way for some milliseconds: once is not enough.
        found = (name for name, (first, last) in self._sightings.items() if last - first >= deadline_seconds)
        return tuple(sorted(found))


def rival(pod: str, sockets: Sequence[str], dra_driver: str) -> str:
    """What an administrator must do about another plugin's pod (namespace/name) or sockets, or about the pod of a DRA
    driver; empty without any."""
    driver = f"pod {dra_driver}" if dra_driver else ""
    driver = driver or next((f"its socket {name} is served" for name in sockets if DRA_DRIVER in name), "")
    if driver:
        return (
            f"NVIDIA's DRA driver runs on this node ({driver}) and hands out the same GPUs, so gpuplan "
            "advertises and changes nothing here: keep it off this node (kubeletPlugin.affinity of its chart), or "
            "switch its GPUs off (resources.gpus.enabled=false)"
        )
    if not (pod or sockets):
        return ""
    found = f"pod {pod}" if pod else f"its socket {sockets[0]} in the kubelet's directory device-plugins is served"
    of_host = (
        "; where it is a service of the host (Bottlerocket, EKS Auto Mode, AKS-managed GPU nodes), use other nodes"
    )
    return (
        f"NVIDIA's device plugin runs on this node ({found}) and hands out the same GPUs, so gpuplan advertises and "
        "changes nothing here: keep its DaemonSet off this node (GPU Operator: label the node "
        f"nvidia.com/gpu.deploy.device-plugin=false){'' if pod else of_host}"
    )

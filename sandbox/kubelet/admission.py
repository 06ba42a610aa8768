"""Decides whether a bound pod may run on its node: devices first, then the node's resources.

Takes a pod, the other active pods and what containers hold; returns None, or a `Rejection` with the kubelet's exact
reason and message, which is final. Order and texts are the kubelet's: the resource check can refuse a pod after its
devices were allocated, and a pod that requests a resource which this kubelet never saw and the node never named is
admitted without it. Affinity, ports and taints are left to the scheduler.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.pods import Amounts, Pod, is_extended_resource

_FIRST = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    reason: str
    message: str
    """As in the Event; the pod's status puts `Pod was rejected: ` before it."""


def check_resources(requests: Amounts, others: Iterable[Amounts], allocatable: Amounts) -> Rejection | None:
    used: dict[str, int] = {"pods": 0}
    for other in others:
        used["pods"] += 1
        for resource, count in other.items():
            used[resource] = used.get(resource, 0) + count
    wanted = {"pods": 1, **{resource: requests[resource] for resource in _order(requests)}}
    for resource, count in wanted.items():
        if resource not in allocatable and (resource == "pods" or is_extended_resource(resource)):
            continue  # an extended resource that the node never named is not the kubelet's to count
        capacity = allocatable.get(resource, 0)
        if count > capacity - used.get(resource, 0):
            return Rejection(
                reason=f"OutOf{resource}",
                message=f"Node didn't have enough resource: {resource}, requested: {count}, "
                f"used: {used.get(resource, 0)}, capacity: {capacity}",
            )
    return None


def raised(allocatable: Amounts, taken: Mapping[str, int]) -> dict[str, int]:
    """Allocatable as the kubelet reads it for a pod with devices: never less than what is allocated already."""
    return {**allocatable, **{name: max(allocatable.get(name, 0), count) for name, count in taken.items()}}


def _order(requests: Amounts) -> list[str]:
    return [name for name in _FIRST if name in requests] + sorted(name for name in requests if name not in _FIRST)


def decide(
    parts: KubeletParts, allocator: Allocator, pod: Pod, already_running: Callable[[str], bool]
) -> Rejection | None:
    refusal = allocator.allocate(pod, already_running)
    if refusal is not None:
        return Rejection(
            reason="UnexpectedAdmissionError",
            message=f"Allocate failed due to {refusal.message}, which is unexpected",
        )
    if parts.node is None:
        return None
    allocatable = parts.node.allocatable
    if any(holder.pod_uid == pod.uid for holder in parts.table.holdings()):
        allocatable = raised(allocatable, parts.table.taken_counts())
    active = (entry for entry in parts.book.active() if entry.pod.uid != pod.uid and entry.run is not None)
    return check_resources(pod.requests, [entry.pod.requests for entry in active], allocatable)

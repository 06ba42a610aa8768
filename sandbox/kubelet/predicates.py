"""Whether a pod still fits its node: the check that the kubelet makes after the devices were allocated.

In: a pod's requests, those of the node's other active pods, the node's allocatable, what containers hold. Out: None,
or a `Rejection` with the kubelet's exact reason and message. Pure. Only resources are looked at; affinity, ports and
taints were the scheduler's business.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox.kubelet.pods import Amounts
from sandbox.kubelet.resource_names import is_extended_resource

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
            continue  # an extended resource that the node never named is somebody else's to count
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

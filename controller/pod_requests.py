"""What a pod requests, by kube-scheduler's rules.

In goes a pod's raw JSON, out come integers per resource: cpu in milli, everything else in units, rounded up. The sum
of containers and sidecars, or the peak of the init chain where that is more; pod-level requests replace cpu, memory
and huge pages; overhead comes on top. Limits stand in for missing requests, as the API server's defaulting has it.
A pod that is bound already counts with what an in-place resize has given it (`held_requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from kube.quantities import cpu_milli, to_int
from partitioning.resources import AckRequest, MpsRequest, classify

Raw = Mapping[str, Any]
Amounts = dict[str, int]


@lru_cache(maxsize=8192)
def amount(resource: str, quantity: str | int | float) -> int:
    """One quantity in the units of this package; raises kube.quantities.QuantityError."""
    return cpu_milli(quantity) if resource == "cpu" else to_int(quantity)


def amounts(quantities: Raw | None) -> Amounts:
    """A resource list, zeroes included."""
    return {resource: amount(resource, quantity) for resource, quantity in (quantities or {}).items()}


def pod_requests(pod: Raw) -> Amounts:
    """What the scheduler looks for when it places the pod: the spec alone counts."""
    return _total(pod["spec"], container_requests)


def held_requests(pod: Raw) -> Amounts:
    """What a bound pod takes on its node: the most of spec, what was allocated and what is in force (1.36's rule)."""
    status = pod.get("status") or {}
    infeasible = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
    reported = {
        entry["name"]: entry
        for key in ("containerStatuses", "initContainerStatuses")
        for entry in status.get(key) or ()
        if entry.get("resources")
    }

    def held(container: Raw) -> Amounts:
        entry = reported.get(container["name"])
        if entry is None or _plain_init(container, pod["spec"]):
            return container_requests(container)
        in_force = amounts(entry["resources"].get("requests"))
        parts = [in_force, amounts(entry.get("allocatedResources"))]
        return _most(parts if infeasible else [container_requests(container), *parts])

    return _total(pod["spec"], held)


def container_requests(container: Raw) -> Amounts:
    """One container's requests; a limit without a request is a request."""
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def most_mps_per_container(spec: Raw) -> int:
    """The largest number of MPS slices that one container asks for. Units of ACK memory are the size of one slice."""
    return max((_mps_slices(container) for container in _containers(spec)), default=0)


def _mps_slices(container: Raw) -> int:
    count = 0
    for resource, number in container_requests(container).items():
        match classify(resource):
            case MpsRequest():
                count += number
            case AckRequest():
                count += 1 if number else 0
            case _:
                pass
    return count


def _total(spec: Raw, of: Callable[[Raw], Amounts]) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, of(container))
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = of(container)
        if _is_sidecar(container):
            _add(total, own)
            _add(running, own)
            step = running
        else:
            step = dict(running)
            _add(step, own)
        peak = _most([peak, step])
    total = _most([total, peak])
    total.update(_pod_level(spec))
    _add(total, amounts(spec.get("overhead")))
    return total


def _pod_level(spec: Raw) -> Amounts:
    given = container_requests(spec)
    return {
        resource: number
        for resource, number in given.items()
        if resource in ("cpu", "memory") or resource.startswith("hugepages-")
    }


def _containers(spec: Raw) -> Iterable[Raw]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def _is_sidecar(container: Raw) -> bool:
    return container.get("restartPolicy") == "Always"


def _plain_init(container: Raw, spec: Raw) -> bool:
    return not _is_sidecar(container) and any(container is init for init in spec.get("initContainers") or ())


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, number in more.items():
        total[resource] = total.get(resource, 0) + number


def _most(parts: Iterable[Mapping[str, int]]) -> Amounts:
    most: Amounts = {}
    for part in parts:
        for resource, number in part.items():
            most[resource] = max(most.get(resource, 0), number)
    return most

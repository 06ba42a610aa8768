"""Computes what a pod requests, by kube-scheduler's rules.

Takes a pod's raw JSON and returns integers per resource: cpu in milli, everything else in units. Quantities are added
as they are and become integers once, at the end, as `kube.quantities` counts them. The total is the sum of containers
and sidecars, or the peak of the init chain where that is more; pod-level requests replace cpu, memory and huge pages;
overhead is added. Limits stand in for missing requests, as the API server defaults them. A bound pod counts with what
an in-place resize has given it (`held_requests`).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kube.pods import Amounts, add, all_containers, is_sidecar, largest, pod_amounts
from kube.quantities import Quantity, cpu_milli, parse_quantity, to_int
from partitioning.resources import ACK_MEMORY, AckRequest, MigRequest, MpsRequest, SharedRequest, WholeRequest, classify

Raw = Mapping[str, Any]
_Quantities = dict[str, Quantity]

_NATIVE = ("cpu", "memory", "ephemeral-storage")


@lru_cache(maxsize=8192)
def amount(resource: str, quantity: str | int | float) -> int:
    """One quantity in the units of this package, at least 0; raises kube.quantities.QuantityError."""
    return max(0, cpu_milli(quantity) if resource == "cpu" else to_int(quantity))


def amounts(quantities: Raw | None) -> Amounts:
    """A resource list, zeroes included."""
    return {resource: amount(resource, quantity) for resource, quantity in (quantities or {}).items()}


def pod_requests(pod: Raw) -> Amounts:
    """What the scheduler needs room for when it places the pod: the spec alone counts."""
    spec = pod["spec"]
    return _counted(_total(spec, _requests, _pod_level(spec)))


def held_requests(pod: Raw) -> Amounts:
    """What a bound pod takes on its node: the most of spec, what was allocated and what is in force (1.36's rule)."""
    spec, status = pod["spec"], pod.get("status") or {}
    infeasible = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
    reported = {
        entry["name"]: entry
        for key in ("containerStatuses", "initContainerStatuses")
        for entry in status.get(key) or ()
        if entry.get("resources") is not None
    }

    def held(container: Raw) -> _Quantities:
        entry = reported.get(container["name"])
        if entry is None or _plain_init(container, spec):
            return _requests(container)
        return _in_force(entry, _requests(container), infeasible)

    pod_level = _pod_level(spec)
    if pod_level and status.get("resources") is not None:
        effective = _in_force(status, pod_level, infeasible)
        pod_level = {resource: effective.get(resource, Quantity(0)) for resource in pod_level}
    return _counted(_total(spec, held, pod_level))


def container_requests(container: Raw) -> Amounts:
    """One container's requests; a limit without a request is a request."""
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def most_mps_per_container(spec: Raw) -> int:
    """The largest number of MPS slices that one container requests. Units of ACK memory are the size of one slice."""
    return max((_mps_slices(container) for container in all_containers(spec)), default=0)


def most_units(spec: Raw) -> int:
    """The most of ACK's resource, in GiB, that one container requests."""
    return max((container_requests(container).get(ACK_MEMORY, 0) for container in all_containers(spec)), default=0)


def mixed_container(spec: Raw) -> tuple[str, ...]:
    """GPU resources of the first container that requests an MPS slice and another kind, sorted.

    Its processes can talk to one MPS daemon only, and see what that one serves. MIG instances and whole GPUs add up.
    """
    for container in all_containers(spec):
        found = {
            resource: kind
            for resource, number in container_requests(container).items()
            if number and (kind := classify(resource)) is not None
        }
        if len(found) > 1 and not all(isinstance(kind, MigRequest | WholeRequest) for kind in found.values()):
            return tuple(sorted(found))
    return ()


def mps_users(spec: Raw) -> tuple[int, ...]:
    """As whom containers with a share of a GPU by MPS run, sorted; -1 where their images say so."""
    of_pod = (spec.get("securityContext") or {}).get("runAsUser", -1)
    sharing = (container for container in all_containers(spec) if _shares(container))
    return tuple(sorted({(one.get("securityContext") or {}).get("runAsUser", of_pod) for one in sharing}))


def overriding_container(spec: Raw) -> str:
    """The first container with a share of a GPU by MPS that sets itself what the share's limits are in; '' for none."""
    return next((one["name"] for one in all_containers(spec) if _shares(one) and _sets_limits(one)), "")


def _shares(container: Raw) -> bool:
    kinds = (classify(resource) for resource, number in container_requests(container).items() if number)
    return any(isinstance(kind, MpsRequest | AckRequest | SharedRequest) for kind in kinds)


def _sets_limits(container: Raw) -> bool:
    names = (variable["name"] for variable in container.get("env") or ())
    return any(name == "NVIDIA_VISIBLE_DEVICES" or name.startswith("CUDA_MPS_") for name in names)


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


_quantity = lru_cache(maxsize=8192)(parse_quantity)


def _quantities(quantities: Raw | None) -> _Quantities:
    return {resource: _quantity(quantity) for resource, quantity in (quantities or {}).items()}


def _counted(total: _Quantities) -> Amounts:
    return {
        resource: amount
        for resource, quantity in total.items()
        if _counts(resource)
        # What overflows below 0 is room for the scheduler, and no device for any pod.
        and ((amount := quantity.milli if resource == "cpu" else quantity.value) > 0 or classify(resource) is None)
    }


def _counts(resource: str) -> bool:
    """Names without a slash that the scheduler does not know are no resource to it, nor are those of quotas."""
    if "/" in resource:
        return not resource.startswith("requests.") or "kubernetes.io/" in resource
    return resource in _NATIVE or resource.startswith(("hugepages-", "attachable-volumes-"))


def _requests(container: Raw) -> _Quantities:
    resources = container.get("resources") or {}
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _in_force(status: Raw, spec: _Quantities, infeasible: bool) -> _Quantities:
    """What a container or pod whose status reports resources takes; a resize that cannot be done is not waited for."""
    parts = [_quantities(status["resources"].get("requests")), _quantities(status.get("allocatedResources"))]
    return largest(parts if infeasible else [spec, *parts])


def _total(spec: Raw, of: Callable[[Raw], _Quantities], pod_level: _Quantities) -> _Quantities:
    total = {**pod_amounts(spec, of).most, **pod_level}
    add(total, _quantities(spec.get("overhead")))
    return total


def _pod_level(spec: Raw) -> _Quantities:
    """Pod-level requests. A limit without a request becomes one only where no container requests that resource."""
    resources = spec.get("resources")
    if not resources:
        return {}
    of_containers = {name for container in all_containers(spec) for name in _requests(container)}
    given = {name: limit for name, limit in _quantities(resources.get("limits")).items() if name not in of_containers}
    given.update(_quantities(resources.get("requests")))
    return {name: given[name] for name in given if name in ("cpu", "memory") or name.startswith("hugepages-")}


def _plain_init(container: Raw, spec: Raw) -> bool:
    return not is_sidecar(container) and any(container is init for init in spec.get("initContainers") or ())

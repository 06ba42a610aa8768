"""What pending pods request of GPUs: which of them planning can help, and why it cannot help the others.

Takes the pending pods of a Snapshot, returns demands in the scheduler's queue order (priority, then creation), and a
reason for every pod that requests partitions and is not served. Whether anything fits is not decided here. Pods that
request no partition are no demand; one that the scheduler has not tried yet may take what is free, no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from controller.model.capacity import Amounts, Capacity, needs_of
from controller.model.misnamed import about_misnamed
from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.views import PlannerOptions, PodView
from partitioning.resources import (
    WHOLE,
    AckRequest,
    MigRequest,
    MpsRequest,
    NoMemoryRequest,
    ResourceRequest,
    SharedRequest,
    WholeRequest,
    classify,
)

Wants = Amounts
"""Partitions per resource name, sorted."""


NO_BIND_FAILURES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One pod, its request split into partitions and the rest."""

    pod: PodView
    wants: Wants
    needs: Capacity
    """What it needs of its node besides partitions."""
    tried: bool = True
    """The scheduler has tried the pod, or another pod of its gang, and found no node."""

    @property
    def single(self) -> str | None:
        """The resource, where exactly one partition is requested."""
        return self.wants[0][0] if len(self.wants) == 1 and self.wants[0][1] == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSet:
    """Pending pods that request partitions, in queue order."""

    helpable: tuple[Demand, ...] = ()
    untried: tuple[Demand, ...] = ()
    """The scheduler has not tried them yet: they may take what is free, nothing is planned for them."""
    refused: tuple[Unplaced, ...] = ()


def collect(
    pending: Iterable[PodView],
    options: PlannerOptions,
    *,
    dra_resources: frozenset[str] = frozenset(),
    bind_failures: Mapping[str, str] = NO_BIND_FAILURES,
    advertised: frozenset[str] = frozenset(),
) -> DemandSet:
    """`dra_resources` are mapped by a DeviceClass: pods that request them are left to DRA.

    `advertised` are resources of nodes: a name that one of them has is right, whatever its form.
    `bind_failures` are pods that were not bound where their partitions were, with that node: left alone now.
    """
    helpable: list[Demand] = []
    untried: list[Demand] = []
    refused: list[Unplaced] = []
    queue = sorted(pending, key=queue_order)
    # A gang's other pods may be held back until all can start: they are meant as well.
    waiting_gangs = {(pod.namespace, pod.gang) for pod in queue if pod.gang and pod.unschedulable}
    for pod in queue:
        if pod.deleting:
            continue
        misnamed = sorted({*pod.misnamed} - advertised - dra_resources) if pod.misnamed else []
        if misnamed and pod.scheduler_name in options.scheduler_names:
            refused.append(_not_served(pod, about_misnamed(misnamed[0])))
            continue
        if not pod.gpu or _is_others_business(pod, options, dra_resources):
            continue
        refusal = _refusal(pod, options, dra_resources) or _unbindable(pod, bind_failures)
        if refusal is not None:
            refused.append(refusal)
            continue
        demand = demand_of(pod)
        if demand.wants:
            tried = pod.unschedulable or (pod.gang and (pod.namespace, pod.gang) in waiting_gangs)
            (helpable if tried else untried).append(demand if tried else replace(demand, tried=False))
    return DemandSet(helpable=tuple(helpable), untried=tuple(untried), refused=tuple(refused))


def queue_order(pod: PodView) -> tuple[int, int, str, str, str]:
    """kube-scheduler's order, with names where it has none."""
    return (-pod.priority, pod.created, pod.namespace, pod.name, pod.uid)


def demand_of(pod: PodView) -> Demand:
    wants, needs = _split(pod.requests)
    return Demand(pod=pod, wants=wants, needs=needs)


@lru_cache(maxsize=4096)
def _split(requests: Amounts) -> tuple[Wants, Capacity]:
    """Partitions and the rest. Thousands of pods request the same few things."""
    wants = tuple(sorted(pair for pair in requests if is_device(pair[0])))
    return wants, needs_of(tuple(pair for pair in requests if not is_device(pair[0])))


@lru_cache(maxsize=4096)
def kind_of(resource: str) -> ResourceRequest | None:
    """`classify`, remembered: thousands of pods name the same few resources."""
    return classify(resource)


def is_partition(resource: str) -> bool:
    """A resource that we make: a MIG instance, or an MPS slice of a size in GB."""
    return isinstance(kind_of(resource), MigRequest | MpsRequest)


def lacks_host_ipc(pod: PodView) -> bool:
    """An MPS client talks to its server through the node's shared memory, which the pod does not share."""
    return not pod.host_ipc and any(isinstance(kind_of(resource), MpsRequest) for resource, _ in pod.gpu)


def _is_others_business(pod: PodView, options: PlannerOptions, dra_resources: frozenset[str]) -> bool:
    """Whole GPUs are served by others as well: a pod of another scheduler, or of DRA, needs no explanation."""
    if not all(isinstance(kind_of(resource), WholeRequest) for resource, _ in pod.gpu):
        return False
    return pod.claims or WHOLE in dra_resources or pod.scheduler_name not in options.scheduler_names


@lru_cache(maxsize=4096)
def is_device(resource: str) -> bool:
    """What the kubelet hands out and a plan decides on: a partition, or a whole GPU."""
    return resource == WHOLE or is_partition(resource)


def _refusal(pod: PodView, options: PlannerOptions, dra_resources: frozenset[str]) -> Unplaced | None:
    """Why a pod that requests a share of a GPU is not planned for; None if it is."""
    kinds = [kind_of(resource) for resource, _ in pod.gpu]
    for (resource, amount), kind in zip(pod.gpu, kinds, strict=True):
        if isinstance(kind, SharedRequest):
            return _not_served(pod, f"{resource} is not served. Request nvidia.com/gpu-<N>gb, an MPS slice of N GB.")
        if isinstance(kind, AckRequest):
            gb = -(-amount * 2**30 // 10**9)
            return _not_served(pod, f"{resource}: {amount} is not served. Request nvidia.com/gpu-{gb}gb: 1.")
        if isinstance(kind, NoMemoryRequest):
            return _not_served(
                pod, f"{resource} is not served: a slice has at least 1 GB. Request nvidia.com/gpu-<N>gb."
            )
    mapped = sorted(resource for resource, _ in pod.gpu if resource in dra_resources) if dra_resources else ()
    if mapped:
        return _not_served(pod, f"A DeviceClass maps {mapped[0]}, so DRA serves this pod. Request another resource.")
    if pod.claims:
        return _not_served(
            pod, "The pod has resource claims, which DRA serves. Request the partition in resources.limits alone."
        )
    return _unusable(pod, options) or _not_now(pod)


def _unusable(pod: PodView, options: PlannerOptions) -> Unplaced | None:
    """What the pod would get, it could not use."""
    if pod.mixed_container:
        kinds_of = " and ".join(pod.mixed_container)
        return _not_served(
            pod,
            f"A container can use only one kind of GPU resource, but one here requests {kinds_of}. "
            "Request one kind, or use several containers.",
        )
    if pod.most_mps_per_container > 1:
        return _not_served(
            pod,
            f"A container can use only one MPS slice, but one here requests {pod.most_mps_per_container}. "
            "Request one larger slice, or use several containers.",
        )
    if pod.scheduler_name not in options.scheduler_names:
        return _not_served(
            pod,
            f"Its scheduler {pod.scheduler_name} is not in the controller's setting schedulerNames "
            f"({', '.join(sorted(options.scheduler_names))}). Ask an administrator to add it.",
        )
    return None


def _not_now(pod: PodView) -> Unplaced | None:
    if pod.scheduling_gates:
        gates = ", ".join(pod.scheduling_gates)
        return _unplaced(
            pod, UnplacedReason.SCHEDULING_GATED, f"Waiting for its scheduling gates ({gates}) to be removed."
        )
    if pod.nominated_node and not pod.nomination_ours:
        return _unplaced(
            pod,
            UnplacedReason.PREEMPTING,
            f"Its scheduler is evicting pods on node {pod.nominated_node} to make room for it.",
        )
    return None


def _unbindable(pod: PodView, bind_failures: Mapping[str, str]) -> Unplaced | None:
    node = bind_failures.get(pod.uid)
    if node is None:
        return None
    return _unplaced(
        pod,
        UnplacedReason.FILTERED_BY_SCHEDULER,
        f"Its partitions were ready twice, last on node {node}, but {pod.scheduler_name} did not bind it. The pod's "
        "PodScheduled condition says which filter rejects it. It is planned again later.",
    )


def _not_served(pod: PodView, message: str) -> Unplaced:
    return _unplaced(pod, UnplacedReason.NOT_SERVED, message)


def _unplaced(pod: PodView, reason: UnplacedReason, message: str) -> Unplaced:
    return Unplaced(uid=pod.uid, key=pod.key, reason=reason, message=message)

"""What a pending pod demands: its request, split into partitions and what it needs of its node besides.

Takes a pod's view and returns values. Pods that request no partition are no demand; one that the scheduler has not
tried yet may take what is free, no more. Whether a request is served is judged in `controller.model.serving`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from controller.model.capacity import Amounts, Capacity, needs_of
from controller.model.results import Unplaced
from controller.model.scheduling import HostPort
from controller.model.views import PodView
from partitioning.resources import WHOLE, MigRequest, MpsRequest, ResourceRequest, classify

Wants = Amounts
"""Partitions per resource name, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One pod, its request split into partitions and the rest."""

    pod: PodView
    wants: Wants
    needs: Capacity
    """What must be free on its node besides partitions: of what it holds there, what its scheduler compares."""
    holds: Capacity
    """What it takes of its node besides partitions."""
    host_ports: tuple[HostPort, ...] = ()
    """Those that its scheduler compares."""
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
    failed: Mapping[str, Exception] = field(default_factory=dict)
    """What judging them raised, by uid."""


def queue_order(pod: PodView) -> tuple[int, int, str, str, str]:
    """kube-scheduler's order, with names where it has none."""
    return (-pod.priority, pod.created, pod.namespace, pod.name, pod.uid)


def demand_of(pod: PodView) -> Demand:
    wants, holds = _split(pod.requests)
    return Demand(pod=pod, wants=wants, needs=holds, holds=holds, host_ports=pod.host_ports, tried=pod.unschedulable)


def total_wants(wants: Iterable[Wants]) -> Counter[str]:
    """Partitions per resource of all of them together. Thousands of pods request the same few things."""
    found: Counter[str] = Counter()
    for same, pods in Counter(wants).items():
        for resource, count in same:
            found[resource] += count * pods
    return found


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


@lru_cache(maxsize=4096)
def is_device(resource: str) -> bool:
    """What the kubelet hands out and a plan decides on: a partition, or a whole GPU."""
    return resource == WHOLE or is_partition(resource)

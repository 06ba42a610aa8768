"""Adds up what a pod's containers request, init containers and sidecars as kube-scheduler counts them.

Takes a pod's spec and a function that returns the amounts of one container, in whatever units; returns the sum of what
runs together, and the most that is held at any time. A sidecar, an init container that is restarted always, starts in
its turn and stays; every other init container ends before the next one starts. Reads no quantity by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Raw = Mapping[str, Any]
Amounts = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAmounts:
    """Per resource."""

    running: Amounts
    """Of containers and sidecars together, once initialisation is over."""
    most: Amounts
    """The most at once: of those, or of an init container with the sidecars that started before it."""


def pod_amounts(spec: Raw, of: Callable[[Raw], Mapping[str, int]]) -> PodAmounts:
    running: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        step = running if is_sidecar(container) else dict(running)
        add(step, of(container))
        most = largest((most, step))
    for container in spec.get("containers") or ():
        add(running, of(container))
    return PodAmounts(running=running, most=largest((most, running)))


def is_sidecar(container: Raw) -> bool:
    """Of init containers only: it goes on running while the others run."""
    return bool(container.get("restartPolicy") == "Always")


def staying_containers(spec: Raw) -> Iterator[Raw]:
    """Those that run until the pod ends: sidecars, then containers."""
    yield from filter(is_sidecar, spec.get("initContainers") or ())
    yield from spec.get("containers") or ()


def all_containers(spec: Raw) -> Iterator[Raw]:
    """Containers, then init containers."""
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def add(total: Amounts, more: Mapping[str, int]) -> None:
    """Add to `total`."""
    for resource, number in more.items():
        total[resource] = total.get(resource, 0) + number


def largest(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """The most of each resource."""
    most: Amounts = {}
    for part in parts:
        for resource, number in part.items():
            most[resource] = max(most.get(resource, 0), number)
    return most

"""Adds up what a pod's containers request, init containers and sidecars as kube-scheduler counts them.

Takes a pod's spec and a function that returns the amounts of one container, in whatever units; returns the sum of what
runs together, and the most that is held at any time. A sidecar, an init container that is restarted always, starts in
its turn and stays; every other init container ends before the next one starts. Reads no quantity by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kube.quantities import Quantity

Raw = Mapping[str, Any]
Amounts = dict[str, int]
Amount = TypeVar("Amount", int, Quantity)
FINISHED = ("Succeeded", "Failed")
"""Phases of a pod that holds nothing any more, and never will again; its containers may still be on their way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAmounts(Generic[Amount]):
    """Per resource."""

    running: dict[str, Amount]
    """Of containers and sidecars together, once initialisation is over."""
    most: dict[str, Amount]
    """The most at once: of those, or of an init container with the sidecars that started before it."""


def pod_amounts(spec: Raw, of: Callable[[Raw], Mapping[str, Amount]]) -> PodAmounts[Amount]:
    running: dict[str, Amount] = {}
    most: dict[str, Amount] = {}
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


def add(total: dict[str, Amount], more: Mapping[str, Amount]) -> None:
    """Add to `total`."""
    for resource, number in more.items():
        total[resource] = total[resource] + number if resource in total else number


def largest(parts: Iterable[Mapping[str, Amount]]) -> dict[str, Amount]:
    """The most of each resource."""
    most: dict[str, Amount] = {}
    for part in parts:
        for resource, number in part.items():
            if resource not in most or number > most[resource]:
                most[resource] = number
    return most

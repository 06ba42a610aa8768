"""Add, subtract and compare amounts of a node's resources: the one arithmetic of CPU, memory, pods and the rest.

A Capacity is what a node has, what its pods hold, what is free, or what one pod needs. It compares as kube-scheduler
does: of what is not needed there is never too little, even where a node's pods hold more than it has. A sum or a
difference is a new value; none is ever changed.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from controller.model.values import value

Amounts = tuple[tuple[str, int], ...]
"""Resources and how much of each, sorted by name, zeroes left out."""

_OWN: Final = ("cpu", "memory", "pods")
_FIRST: Final = "ephemeral-storage"


@value
class Capacity:
    """CPU in milli, memory in bytes, pods, other resources in units. A difference may be negative."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    other: Amounts = ()

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> "Capacity":
        """A resource list, such as a node's allocatable."""
        return cls(
            amounts.get("cpu", 0),
            amounts.get("memory", 0),
            amounts.get("pods", 0),
            _sorted({name: amount for name, amount in amounts.items() if name not in _OWN}),
        )

    @classmethod
    def total(cls, parts: Iterable["Capacity"]) -> "Capacity":
        """The sum of many, without a value for each step."""
        cpu_milli = memory_bytes = pods = 0
        other: dict[str, int] = {}
        for part in parts:
            cpu_milli += part.cpu_milli
            memory_bytes += part.memory_bytes
            pods += part.pods
            for name, amount in part.other:
                other[name] = other.get(name, 0) + amount
        return cls(cpu_milli, memory_bytes, pods, _sorted(other))

    def __add__(self, more: "Capacity") -> "Capacity":
        return Capacity(
            self.cpu_milli + more.cpu_milli,
            self.memory_bytes + more.memory_bytes,
            self.pods + more.pods,
            _combined(self.other, more.other, 1) if more.other else self.other,
        )

    def __sub__(self, less: "Capacity") -> "Capacity":
        return Capacity(
            self.cpu_milli - less.cpu_milli,
            self.memory_bytes - less.memory_bytes,
            self.pods - less.pods,
            _combined(self.other, less.other, -1) if less.other else self.other,
        )

    def __getitem__(self, resource: str) -> int:
        """How much there is of one resource, 0 of an unknown one."""
        match resource:
            case "cpu":
                return self.cpu_milli
            case "memory":
                return self.memory_bytes
            case "pods":
                return self.pods
        return _amount(self.other, resource)

    def fits(self, needed: "Capacity") -> bool:
        """There is room here for what is needed."""
        if 0 < needed.cpu_milli > self.cpu_milli or 0 < needed.memory_bytes > self.memory_bytes:
            return False
        if 0 < needed.pods > self.pods:
            return False
        return not needed.other or all(
            amount <= 0 or amount <= _amount(self.other, name) for name, amount in needed.other
        )

    def short_of(self, needed: "Capacity", *, held: "Capacity | None" = None) -> list[str]:
        """Resources of which there is too little here, in kube-scheduler's order; none where it fits.

        `held` is taken off before, resource by resource: cheaper than a difference of all of them.
        """
        held = held or NOTHING
        short = []
        if 0 < needed.pods > self.pods - held.pods:
            short.append("pods")
        if 0 < needed.cpu_milli > self.cpu_milli - held.cpu_milli:
            short.append("cpu")
        if 0 < needed.memory_bytes > self.memory_bytes - held.memory_bytes:
            short.append("memory")
        if needed.other:
            names = [
                name
                for name, amount in needed.other
                if 0 < amount > _amount(self.other, name) - _amount(held.other, name)
            ]
            short += names if len(names) < 2 else sorted(names, key=lambda name: (name != _FIRST, name))
        return short


NOTHING: Final = Capacity()


@lru_cache(maxsize=8192)
def needs_of(requests: Amounts) -> Capacity:
    """What one pod with these requests needs. Thousands of pods request the same few things."""
    return Capacity.of({**dict(requests), "pods": 1})


def _amount(amounts: Amounts, resource: str) -> int:
    for name, amount in amounts:
        if name == resource:
            return amount
    return 0


def _sorted(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount)) if amounts else ()


def _combined(one: Amounts, other: Amounts, sign: int) -> Amounts:
    amounts = dict(one)
    for name, amount in other:
        amounts[name] = amounts.get(name, 0) + sign * amount
    if len(amounts) == len(one) and all(amounts.values()):  # the same resources, in their order
        return tuple(amounts.items())
    return _sorted(amounts)

"""Chooses the devices of a container, before and after its plugin states a preference.

Takes the count, devices to reuse from the pod's init containers, and the free ones; returns `Wanted` (call the plugin,
then settle), or `Refusal` with the kubelet's sentence. Pure; the order of devices is random as in the
kubelet, from a seeded source.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Refusal:
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    resource: str
    size: int
    must_include: frozenset[str]
    free: frozenset[str]

    @property
    def complete(self) -> bool:
        return len(self.must_include) == self.size

    @property
    def available(self) -> frozenset[str]:
        return self.free | self.must_include

    def settle(self, preferred: Iterable[str], random: Random) -> frozenset[str]:
        """A preference is a hint: ids that are not free are ignored, the rest is filled up at random."""
        hinted = [device_id for device_id in dict.fromkeys(preferred) if device_id in self.free - self.must_include]
        rest = shuffled(self.free - self.must_include - frozenset(hinted), random)
        return self.must_include | frozenset([*hinted, *rest][: self.size - len(self.must_include)])


def choose(
    resource: str, size: int, reusable: frozenset[str], free: frozenset[str], random: Random
) -> Wanted | Refusal:
    reused = frozenset(shuffled(reusable, random)[:size])
    missing = size - len(reused)
    if len(free) < missing:
        return Refusal(
            f"requested number of devices unavailable for {resource}. Requested: {missing}, Available: {len(free)}"
        )
    return Wanted(resource=resource, size=size, must_include=reused, free=free)


def shuffled(ids: Iterable[str], random: Random) -> list[str]:
    ordered = sorted(ids)
    random.shuffle(ordered)
    return ordered

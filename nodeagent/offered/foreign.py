"""Whether somebody else offers devices under our resource names.

In go the kubelet's ids and our own, out come the contested resources. Two plugins on one resource throw each other out
every few seconds, and the kubelet shows now their ids, now ours: so the age is kept per resource, whatever the ids are,
and only a resource that showed nothing strange for the whole deadline is no longer contested. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class _Sighting:
    """Strange ids on one resource; times are monotonic."""

    ids: tuple[str, ...]
    first_at: float
    last_at: float


class Contest:
    def __init__(self, clock: Callable[[], float], *, deadline_seconds: float) -> None:
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._sightings: dict[str, _Sighting] = {}

    def look(self, taken: Mapping[str, Collection[str]], ours: Collection[str]) -> None:
        """Take in what the kubelet shows while our own list is in force."""
        now = self._clock()
        for resource, ids in sorted(taken.items()):
            strange = tuple(sorted(set(ids) - set(ours)))
            if strange:
                before = self._sightings.get(resource, _Sighting(strange, now, now))
                self._sightings[resource] = replace(before, ids=strange, last_at=now)

    def resources(self) -> Mapping[str, tuple[str, ...]]:
        """The contested ones, with the strange ids that were seen last."""
        now = self._clock()
        quiet = [name for name, seen in self._sightings.items() if now - seen.last_at > self._deadline_seconds]
        for name in quiet:
            del self._sightings[name]
        # An older list of our own may still be on its way for some milliseconds: once is not enough.
        return {
            name: seen.ids
            for name, seen in sorted(self._sightings.items())
            if seen.last_at - seen.first_at >= self._deadline_seconds
        }

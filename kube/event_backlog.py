"""Orders the Events to write: the queue between `kube.events.EventRecorder` and its thread.

Events about one object with one type, reason and series are one series: its latest content, and how often it was
emitted since it was last written. A series is due at once, unless it repeats the latest content about its object within
`quiet_seconds` of the last write: then it is due when that time is over. A repeat that is held back is dropped when
another Event about the object follows, so that the Event written last about an object is the one emitted last. Takes
the time as an argument; does no I/O and is not thread-safe.
"""

import heapq
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic.alias_generators import to_camel

EventType = Literal["Normal", "Warning"]
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """What an Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    def as_json(self) -> dict[str, str]:
        return {to_camel(name): value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContent:
    """One emitted Event."""

    about: ObjectReference
    type: EventType
    reason: str
    message: str
    series: str
    at: str = ""
    """RFC 3339 time at which it was emitted."""

    @property
    def object(self) -> str:
        return self.about.uid or self.about.name

    @property
    def key(self) -> Key:
        return (self.object, self.type, self.reason, self.series)


@dataclass(slots=True, kw_only=True)
class Series:
    """What is known of one Event object."""

    content: EventContent
    emitted: int = 0
    """How often since the last write."""
    count: int = 0
    """As the API has it; 0: not known to this process."""
    written_at: float = field(default=float("-inf"))


class EventBacklog:
    """Series to be written, first come first served."""

    def __init__(self, *, quiet_seconds: float, size: int, remembered: int) -> None:
        self._quiet_seconds, self._size, self._remembered = quiet_seconds, size, remembered
        self._ready: OrderedDict[Key, Series] = OrderedDict()
        self._held: dict[Key, Series] = {}
        self._due: list[tuple[float, Key]] = []
        """A heap over `_held`; it may have entries that are no longer held."""
        self._series: OrderedDict[Key, Series] = OrderedDict()
        self._newest: OrderedDict[str, Key] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ready) + len(self._held)

    @property
    def namespaces(self) -> frozenset[str]:
        """Of all objects whose Events are remembered."""
        return frozenset(series.content.about.namespace for series in self._series.values())

    def add(self, content: EventContent, now: float) -> bool:
        """Queue one Event; False if there is no room."""
        key, queued = content.key, content.key in self._ready or content.key in self._held
        if not queued and len(self) >= self._size:
            return False
        series = self._series.setdefault(key, Series(content=content))
        series.content = content
        series.emitted += 1
        newest = self._newest.get(content.object)
        self._remember(key, content.object)
        if newest != key and newest is not None:
            self._held.pop(newest, None)
        if key in self._ready:
            if newest != key:
                self._ready.move_to_end(key)
        elif newest == key and now - series.written_at < self._quiet_seconds:
            if key not in self._held:
                heapq.heappush(self._due, (series.written_at + self._quiet_seconds, key))
            self._held[key] = series
        else:
            self._ready[key] = series
        return True

    def due_in(self, now: float) -> float | None:
        """Seconds until something is due, 0 at the earliest; None: nothing is queued."""
        if self._ready:
            return 0.0
        while self._due and self._dropped(*self._due[0]):
            heapq.heappop(self._due)
        return max(0.0, self._due[0][0] - now) if self._due else None

    def take(self, now: float) -> Series:
        """The next one, which counts as written now. Call it when something is due, or to write held ones early."""
        if self._ready:
            _, series = self._ready.popitem(last=False)
        else:
            _, key = heapq.heappop(self._due)
            series = self._held.pop(key)
        series.written_at = now
        return series

    def _dropped(self, due: float, key: Key) -> bool:
        """An entry of the heap whose repeat was dropped, and perhaps held again since then."""
        series = self._held.get(key)
        return series is None or due < series.written_at + self._quiet_seconds

    def _remember(self, key: Key, about: str) -> None:
        self._series.move_to_end(key)
        self._newest[about] = key
        self._newest.move_to_end(about)
        for known in (self._series, self._newest):
            if len(known) > self._remembered:
                known.popitem(last=False)

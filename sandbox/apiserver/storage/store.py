"""Stores all objects by collection, with the recent history for watches and consistent pages.

Takes complete objects (`commit`) and returns entries with cached JSON, and events in the order of their resource
version. The resource version starts at the clock in milliseconds, so that a client that outlives the server gets 410
and lists again. Must never check an object: rules come before it. Belongs to the thread of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.apiserver.objects import Obj, encode

Key = tuple[str, str]  # namespace ('' for cluster-scoped kinds), name
CollectionId = tuple[str, str]  # group, plural

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


@dataclass(slots=True, eq=False)
class Entry:
    """One version of one object, and its JSON once it was requested."""

    obj: Obj
    version: int
    _encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = encode(self.obj)
        return self._encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One write: what it was, the entry after it (for DELETED: the last state) and the entry before it."""

    version: int
    type: str
    key: Key
    entry: Entry
    previous: Entry | None


class Collection:
    """The objects of one resource. `horizon` is the newest version whose event is forgotten."""

    def __init__(self, horizon: int, window: int) -> None:
        self.items: dict[Key, Entry] = {}
        self.horizon = horizon
        self.closed = False
        self._window = window
        self.history: deque[Event] = deque()
        self._watchers: set[asyncio.Event] = set()
        self._sorted: list[Key] | None = None

    def ordered_keys(self) -> list[Key]:
        """All keys in the order of a list: by namespace, then name."""
        if self._sorted is None:
            self._sorted = sorted(self.items)
        return self._sorted

    def record(self, event: Event) -> None:
        if event.type == DELETED:
            self.items.pop(event.key, None)
        else:
            self.items[event.key] = event.entry
        if event.type != MODIFIED:
            self._sorted = None
        self.history.append(event)
        if len(self.history) > self._window:
            self.horizon = self.history.popleft().version
        self.wake()

    def since(self, version: int) -> list[Event]:
        """The events after `version`, oldest first; costs what it returns, not the whole history."""
        fresh: list[Event] = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            fresh.append(event)
        fresh.reverse()
        return fresh

    def at(self, version: int) -> dict[Key, Entry]:
        """The items as they were at `version`, which must not lie before the horizon."""
        past = dict(self.items)
        for event in reversed(self.since(version)):
            if event.previous is None:
                past.pop(event.key, None)
            else:
                past[event.key] = event.previous
        return past

    def close(self) -> None:
        self.closed = True
        self.wake()

    def wake(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    def subscribe(self) -> asyncio.Event:
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        return watcher

    def unsubscribe(self, watcher: asyncio.Event) -> None:
        self._watchers.discard(watcher)


class Store:
    """The collections and the one counter that orders all writes."""

    def __init__(self, first_version: int, window: int) -> None:
        self.version = first_version
        self._first_version = first_version
        self._window = window
        self._dropped: dict[CollectionId, int] = {}
        self.collections: dict[CollectionId, Collection] = {}
        self._listeners: list[Callable[[CollectionId, Event], None]] = []

    def collection(self, identity: CollectionId) -> Collection:
        found = self.collections.get(identity)
        if found is None:
            horizon = self._dropped.get(identity, self._first_version)  # since then nothing happened to it
            found = self.collections[identity] = Collection(horizon, self._window)
        return found

    def drop(self, identity: CollectionId) -> None:
        """Drop a collection permanently; its watches end."""
        gone = self.collections.pop(identity, None)
        self._dropped[identity] = self.version
        if gone is not None:
            gone.close()

    def listen(self, listener: Callable[[CollectionId, Event], None]) -> None:
        """`listener` is called after each commit, on the same thread."""
        self._listeners.append(listener)

    def commit(self, identity: CollectionId, type_: str, key: Key, obj: Obj) -> Obj:
        """Store one write under the next resource version; returns the object that carries it."""
        collection = self.collection(identity)
        self.version += 1
        stamped = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        event = Event(
            version=self.version,
            type=type_,
            key=key,
            entry=Entry(stamped, self.version),
            previous=collection.items.get(key),
        )
        collection.record(event)
        for listener in self._listeners:
            listener(identity, event)
        return stamped

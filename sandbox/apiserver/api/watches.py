"""Streams the events of a watch, from the version and until the timeout that the client gives.

Takes a collection and the options of a watch, and yields one JSON line per event. A watch keeps nothing but its
position; events come from the collection's history, and a position before the history ends with 410 in an ERROR event.
A position in the future stays silent until the timeout, as on a real server.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from sandbox.apiserver.api.representation import partial_metadata, table
from sandbox.apiserver.errors import expired
from sandbox.apiserver.objects import Obj, encode, meta
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.selectors import Predicate
from sandbox.apiserver.storage.store import ADDED, DELETED, MODIFIED, Collection, Entry, Event, Store

_INITIAL_BATCH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watch. `start` 0: begin with the present state."""

    resource: Resource
    namespace: str = ""
    matches: Predicate | None = None
    start: int = 0
    bookmarks: bool = False
    timeout_seconds: int = 0
    bookmark_seconds: float = 60.0
    as_table: bool = False
    include: str = "Metadata"


class Watch:
    """One watch on one collection."""

    def __init__(self, store: Store, options: WatchOptions) -> None:
        self._store = store
        self._options = options
        self._collection: Collection = store.collection(options.resource.collection)
        self._position = options.start
        self._with_columns = True
        self._stopped = False

    def stop(self) -> None:
        """End the stream at once, as a server that goes away does."""
        self._stopped = True
        self._collection.wake()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        options, loop = self._options, asyncio.get_running_loop()
        ends = loop.time() + (options.timeout_seconds or random.uniform(1800, 3600))
        waker = self._collection.subscribe()
        try:
            if options.start == 0:
                for chunk in self._initial():
                    yield chunk
            while not self._stopped:
                waker.clear()
                if self._position < self._collection.horizon:
                    yield self._gone()
                    return
                chunk = self._fresh()
                if chunk:
                    yield chunk
                    continue
                left = ends - loop.time()
                if left <= 0 or self._collection.closed:
                    break
                bookmark = await self._wait(waker, left)
                if bookmark:
                    yield bookmark
            if options.bookmarks and not self._stopped and self._position <= self._store.version:
                yield self._bookmark()
        finally:
            self._collection.unsubscribe(waker)

    async def _wait(self, waker: asyncio.Event, left_seconds: float) -> bytes:
        """Until something happens; a bookmark where nothing did for long."""
        options = self._options
        patience = min(left_seconds, options.bookmark_seconds) if options.bookmarks else left_seconds
        try:
            async with asyncio.timeout(patience):
                await waker.wait()
        except TimeoutError:
            if waker.is_set():  # in the same turn of the loop: a bookmark would skip what happened
                return b""
            if options.bookmarks and left_seconds > patience and self._position <= self._store.version:
                self._position = self._store.version
                return self._bookmark()
        return b""

    def _initial(self) -> list[bytes]:
        """The present state as ADDED events, in chunks."""
        self._position = self._store.version
        collection = self._collection
        entries = [collection.items[key] for key in collection.ordered_keys()]
        lines = [self._line(ADDED, entry) for entry in entries if self._selected(entry)]
        return [b"".join(lines[n : n + _INITIAL_BATCH]) for n in range(0, len(lines), _INITIAL_BATCH)]

    def _fresh(self) -> bytes:
        """Everything since the last call that the selectors select."""
        lines: list[bytes] = []
        for event in self._collection.since(self._position):
            self._position = event.version
            line = self._seen(event)
            if line:
                lines.append(line)
        self._position = max(self._position, self._store.version)  # other kinds moved on: bookmarks may say so
        return b"".join(lines)

    def _seen(self, event: Event) -> bytes:
        before = event.previous is not None and self._selected(event.previous)
        after = event.type != DELETED and self._selected(event.entry)
        if after:
            return self._line(MODIFIED if before else ADDED, event.entry)
        if not before:
            return b""
        if event.type == DELETED:
            return self._line(DELETED, event.entry)
        return self._line(DELETED, _last_seen(event))

    def _selected(self, entry: Entry) -> bool:
        options = self._options
        if options.namespace and meta(entry.obj).get("namespace") != options.namespace:
            return False
        return options.matches is None or options.matches(entry.obj)

    def _line(self, type_: str, entry: Entry) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), self._shown(entry))

    def _shown(self, entry: Entry) -> bytes:
        options = self._options
        if not options.as_table:
            return entry.encoded
        metadata = {"resourceVersion": str(entry.version)}
        shown = table(options.resource, [entry.obj], metadata, options.include, with_columns=self._with_columns)
        self._with_columns = False
        return encode(shown)

    def _bookmark(self) -> bytes:
        """A position without an object: it has a kind and a version but no name."""
        resource = self._options.resource
        metadata: Obj = {"resourceVersion": str(self._position), "creationTimestamp": None}
        obj: Obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self._options.as_table:
            obj = partial_metadata(obj)
        return encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _gone(self) -> bytes:
        status = expired(f"too old resource version: {self._position} ({self._collection.horizon})").status()
        return encode({"type": "ERROR", "object": status}) + b"\n"


def _last_seen(event: Event) -> Entry:
    """An object that left the selection: as it was inside, under the version of the change."""
    if event.previous is None:
        return event.entry
    obj = event.previous.obj
    metadata = {**obj["metadata"], "resourceVersion": str(event.version)}
    return Entry({**obj, "metadata": metadata}, event.version)

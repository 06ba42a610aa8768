"""A watch whose bookmark is due in the same turn of the loop in which an object changes."""

import asyncio
import json

from sandbox.apiserver.api.watches import Watch, WatchOptions
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.store import ADDED, Store

THINGS = Resource(group="", version="v1", plural="things", kind="Thing", singular="thing")


def test_an_event_that_comes_as_the_bookmark_falls_due_is_not_skipped() -> None:
    async def first() -> dict[str, str]:
        store = Store(first_version=100, window=10)
        options = WatchOptions(resource=THINGS, start=100, bookmarks=True, bookmark_seconds=0, timeout_seconds=60)
        lines = Watch(store, options).lines()
        found = asyncio.ensure_future(anext(lines))
        for _ in range(2):  # one turn to begin to wait, and one in which the time runs out
            await asyncio.sleep(0)
        store.commit(THINGS.collection, ADDED, ("", "a"), {"metadata": {"name": "a"}})
        event: dict[str, str] = json.loads(await found)
        await lines.aclose()
        return event

    assert asyncio.run(first())["type"] == ADDED

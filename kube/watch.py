"""Reads one list and one watch from the API, page by page and line by line, as raw JSON objects.

Takes a collection's path and a query, yields objects or events as they arrive. A 410 in the middle of paging restarts
the list in one piece; a 410 inside a watch (an ERROR event in a 200 answer) is raised like any other. Keeps nothing
between calls; `kube.reflector` decides what happens next.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes.client import ApiClient

from kube import errors
from kube.transport import Query, Timeouts, open_response, request

PAGE_SIZE = 500
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ListPage:
    items: list[dict[str, Any]]
    resource_version: str
    restarted: bool  # what earlier pages held is void, this one starts the list over


@dataclass(frozen=True, slots=True)
class Event:
    type: str  # ADDED, MODIFIED, DELETED or BOOKMARK
    object: dict[str, Any]


def list_pages(api: ApiClient, path: str, query: Query) -> Iterator[ListPage]:
    """The collection at one resourceVersion, that of the first page: the watch delivers what changed since then."""
    paging: dict[str, str | int] = {"limit": PAGE_SIZE}
    version = ""
    restarted = False
    while True:
        try:
            answer = json.loads(request(api, "GET", path, query={**query, **paging}))
        except errors.Gone:
            if "limit" not in paging:
                raise
            paging, version, restarted = {}, "", True
            continue
        metadata = answer.get("metadata") or {}
        version = version or str(metadata.get("resourceVersion", ""))
        yield ListPage(items=answer.get("items") or [], resource_version=version, restarted=restarted)
        restarted = False
        token = metadata.get("continue")
        if not token:
            return
        paging = {"limit": PAGE_SIZE, "continue": token}


class WatchStream:
    """An open watch. Iterate in one thread; `close` from any thread ends that iteration at once."""

    def __init__(self, api: ApiClient, path: str, query: Query, *, version: str, timing: "WatchTiming") -> None:
        parameters = {
            **query,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": version,
            "timeoutSeconds": timing.watch_seconds,
        }
        # Some servers send nothing on a quiet watch until it ends, so silence means a dead peer only after that. One
        # that sends bookmarks does so every minute.
        self._bookmarked_read_seconds = timing.bookmarked_read_seconds
        timeouts = Timeouts(read_seconds=timing.watch_seconds + timing.read_slack_seconds)
        self._response = open_response(api, "GET", path, query=parameters, timeouts=timeouts)
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[Event]:
        try:
            for line in _lines(self._response):
                event = _event(json.loads(line))
                if event.type == "BOOKMARK":
                    self._expect_bookmarks()
                yield event
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if not self._closed.is_set():
                raise errors.Unavailable(f"the watch broke: {error}", reason=type(error).__name__) from error
        finally:
            self._response.close()

    def _expect_bookmarks(self) -> None:
        socket = getattr(self._response.connection, "sock", None)
        if socket is not None:  # None: the answer has ended; the next request on the connection sets its own time-out
            socket.settimeout(self._bookmarked_read_seconds)

    def close(self) -> None:
        self._closed.set()
        # Shut the socket down rather than close it: closing does not wake a thread that is blocked in a read. It fails
        # where the answer has just ended by itself, which is as good.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTiming:
    watch_seconds: int = 300  # requested of the server; also how long a resourceVersion from the future can fool us
    read_slack_seconds: float = 30.0
    bookmarked_read_seconds: float = 120.0  # longest silence once a bookmark was seen: they come every minute
    first_backoff_seconds: float = 0.2
    cap_backoff_seconds: float = 30.0
    short_watch_seconds: float = 1.0  # a watch that ends sooner counts as a failure


def _lines(response: urllib3.HTTPResponse) -> Iterator[bytes]:
    """Complete lines; what a broken connection leaves behind the last newline is dropped."""
    pending = b""
    for chunk in response.stream(CHUNK_BYTES):
        *complete, pending = (pending + chunk).split(b"\n")
        yield from (line for line in complete if line.strip())


def _event(line: Mapping[str, Any]) -> Event:
    kind, body = str(line.get("type", "")), line.get("object")
    if not isinstance(body, dict):
        raise ValueError(f"a watch event of type {kind!r} without an object")
    if kind == "ERROR":
        raise errors.from_status(int(body.get("code") or 500), body)
    return Event(kind, body)

"""A reflector against a scripted server: what it lists and watches, and the changes that it reports."""

import queue
import time
from collections.abc import Callable
from typing import Any

from kube import clients
from kube.reflector import Key, Reflector
from kube.watch import WatchTiming
from tests.kube.fake_api import Answer, FakeApi, Reply, Request, Route, Stream
from tests.waiting import SECONDS

Serve = Callable[[Route], FakeApi]
Change = tuple[Key, str | None, str | None]
PATH = "/api/v1/pods"
QUICK = WatchTiming(
    watch_seconds=1,
    read_slack_seconds=1.0,
    first_backoff_seconds=0.01,
    cap_backoff_seconds=0.05,
    short_watch_seconds=0.0,
)


def pod(name: str, phase: str, version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"phase": phase}}


def bookmark(version: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}


def page(version: int, *pods: dict[str, Any], token: str = "") -> Reply:
    return Reply({"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(pods)})


def phase_of(item: dict[str, Any]) -> str | None:
    phase: str = item["status"]["phase"]
    return None if phase == "Succeeded" else phase


class Script:
    """Lists and watches are answered from two queues; a watch beyond the script stays silent."""

    def __init__(self, lists: list[Answer], watches: list[Answer]) -> None:
        self.lists, self.watches = lists, watches

    def __call__(self, request: Request) -> Answer:
        if request.query.get("watch"):
            return self.watches.pop(0) if self.watches else Stream()
        return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]


class Watched:
    """A started reflector and the changes that it reported."""

    def __init__(
        self,
        server: FakeApi,
        timing: WatchTiming = QUICK,
        clock: Callable[[], float] = time.monotonic,
        **params: str,
    ) -> None:
        self.changes: queue.Queue[Change] = queue.Queue()
        self.gaps: list[float] = []
        self.reflector: Reflector[str] = Reflector(
            clients.for_url(server.url),
            PATH,
            project=phase_of,
            on_change=self.changed,
            on_gap=self.gaps.append,
            params=params,
            timing=timing,
            jitter=lambda: 1.0,
            clock=clock,
        )
        self.reflector.start()

    def changed(self, key: Key, old: str | None, new: str | None) -> None:
        self.changes.put((key, old, new))

    def next(self) -> Change:
        return self.changes.get(timeout=SECONDS)


def change(name: str, old: str | None, new: str | None) -> Change:
    return (("ns", name), old, new)

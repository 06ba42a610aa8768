"""The reflector against a server that pages, breaks off, expires, hangs and restarts."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube import clients
from kube.backoff import Backoff
from kube.reflector import Key, Reflector
from kube.transport import request
from kube.watch import WatchTiming
from tests.clock import Clock
from tests.kube.fake_api import Answer, FakeApi, Hang, Reply, Request, Route, Stream, status
from tests.waiting import eventually

Serve = Callable[[Route], FakeApi]
Change = tuple[Key, str | None, str | None]
PATH = "/api/v1/pods"
PROBES = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_NODELAY")
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
        self.reflector: Reflector[str] = Reflector(
            clients.for_url(server.url),
            PATH,
            project=phase_of,
            on_change=self.changed,
            params=params,
            timing=timing,
            jitter=lambda: 1.0,
            clock=clock,
        )
        self.reflector.start()

    def changed(self, key: Key, old: str | None, new: str | None) -> None:
        self.changes.put((key, old, new))

    def next(self) -> Change:
        return self.changes.get(timeout=10)


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def start(*args: Any, **kwargs: Any) -> Watched:
        started.append(Watched(*args, **kwargs))
        return started[-1]

    yield start
    for watched in started:
        watched.reflector.stop(timeout_seconds=0.2)


def change(name: str, old: str | None, new: str | None) -> Change:
    return (("ns", name), old, new)


def test_pages_then_events(serve: Serve, watch: Callable[..., Watched]) -> None:
    stream = Stream()
    lists: list[Answer] = [page(7, pod("a", "Pending"), token="t1"), page(9, pod("b", "Running"))]
    server = serve(Script(lists, [stream]))
    watched = watch(server, fieldSelector="spec.nodeName=n")
    assert watched.next() == change("a", None, "Pending")
    assert watched.next() == change("b", None, "Running")
    assert watched.reflector.synced.wait(10)
    first, second = server.of("GET", limit="500")
    assert (first.query.get("continue"), second.query.get("continue")) == (None, "t1")
    assert first.query["fieldSelector"] == "spec.nodeName=n"

    stream.send("ADDED", pod("c", "Pending", 10))
    stream.send("MODIFIED", pod("c", "Pending", 11))  # the projection is the same: not reported
    stream.send("MODIFIED", pod("a", "Running", 12))
    stream.send("DELETED", pod("b", "Running", 13))
    stream.send("MODIFIED", pod("a", "Succeeded", 14))  # of no interest any more
    assert [watched.next() for _ in range(4)] == [
        change("c", None, "Pending"),
        change("a", "Pending", "Running"),
        change("b", "Running", None),
        change("a", "Running", None),
    ]
    assert watched.reflector.items() == {("ns", "c"): "Pending"}
    (opened,) = server.of("GET", watch="true")
    assert opened.query["resourceVersion"] == "7"  # of the first page: later pages may be older than they look
    assert opened.query["allowWatchBookmarks"] == "true"
    assert opened.query["timeoutSeconds"] == "1"
    assert opened.query["fieldSelector"] == "spec.nodeName=n"


def test_410_in_the_middle_of_paging_lists_again_in_one_piece(serve: Serve, watch: Callable[..., Watched]) -> None:
    lists: list[Answer] = [
        page(7, pod("a", "Pending"), pod("gone", "Pending"), token="t1"),
        status(410, "Expired"),
        page(20, pod("a", "Running"), pod("b", "Pending")),
    ]
    server = serve(Script(lists, []))
    watched = watch(server)
    assert watched.reflector.synced.wait(10)
    assert watched.reflector.items() == {("ns", "a"): "Running", ("ns", "b"): "Pending"}
    assert "limit" not in server.of("GET")[2].query
    eventually(lambda: server.of("GET", watch="true"), "a watch")
    assert server.of("GET", watch="true")[0].query["resourceVersion"] == "20"


def test_410_inside_a_watch_lists_again_and_reports_the_difference(serve: Serve, watch: Callable[..., Watched]) -> None:
    stream = Stream()
    lists: list[Answer] = [
        page(7, pod("a", "Pending"), pod("b", "Pending"), pod("c", "Pending")),
        page(30, pod("a", "Pending"), pod("b", "Running"), pod("d", "Pending")),
    ]
    server = serve(Script(lists, [stream]))
    watched = watch(server)
    assert [watched.next()[0][1] for _ in range(3)] == ["a", "b", "c"]
    stream.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    assert [watched.next() for _ in range(3)] == [
        change("b", "Pending", "Running"),
        change("d", None, "Pending"),
        change("c", "Pending", None),
    ]
    eventually(lambda: server.of("GET", watch="true", resourceVersion="30"), "a watch from version 30")


def test_a_watch_goes_on_from_the_last_bookmark(serve: Serve, watch: Callable[..., Watched]) -> None:
    first, second = Stream(), Stream()
    server = serve(Script([page(7)], [first, second]))
    watched = watch(server)
    first.send("MODIFIED", pod("a", "Pending", 8))
    first.send("BOOKMARK", bookmark(40))
    first.end()
    eventually(lambda: server.of("GET", watch="true", resourceVersion="40"), "a watch from version 40")
    second.send("ADDED", pod("b", "Pending", 41))
    assert [watched.next(), watched.next()] == [change("a", None, "Pending"), change("b", None, "Pending")]
    assert len(server.of("GET", limit="500")) == 1


def test_a_broken_watch_goes_on_without_replaying(serve: Serve, watch: Callable[..., Watched]) -> None:
    first = Stream()
    server = serve(Script([page(7)], [first]))
    watched = watch(server)
    first.send("ADDED", pod("a", "Pending", 8))
    first.send("MODIFIED", pod("a", "Running", 9))
    first.break_off(b'{"type": "MODIFIED", "object": {"meta')
    assert [watched.next()[2], watched.next()[2]] == ["Pending", "Running"]
    eventually(lambda: server.of("GET", watch="true", resourceVersion="9"), "a watch from version 9")
    assert not server.of("GET", watch="true", resourceVersion="8")


def test_a_wholly_silent_watch_is_followed_by_a_list(serve: Serve, watch: Callable[..., Watched]) -> None:
    """A version from the future: 200 and silence, until the time-out that we asked for."""

    def route(request: Request) -> Answer:
        if not request.query.get("watch"):
            return page(7)
        stream = Stream()
        threading.Timer(1.0, stream.end).start()  # the server keeps timeoutSeconds
        return stream

    server = serve(route)
    watch(server)
    eventually(lambda: len(server.of("GET", limit="500")) == 2, "a second list")


def test_a_dead_peer_is_noticed(serve: Serve, watch: Callable[..., Watched]) -> None:
    timing = WatchTiming(watch_seconds=1, read_slack_seconds=-0.8, first_backoff_seconds=0.01)
    server = serve(Script([page(7)], []))
    watched = watch(server, timing=timing)
    eventually(lambda: len(server.of("GET", watch="true", resourceVersion="7")) >= 2, "two watches from version 7")
    assert "the watch broke" in watched.reflector.last_error


def test_silence_after_a_bookmark_means_a_dead_peer_much_sooner(serve: Serve, watch: Callable[..., Watched]) -> None:
    stream = Stream()
    stream.send("BOOKMARK", bookmark(8))
    server = serve(Script([page(7)], [stream]))
    watched = watch(server, timing=WatchTiming(bookmarked_read_seconds=0.2, first_backoff_seconds=0.01))
    eventually(lambda: len(server.of("GET", watch="true", resourceVersion="8")) == 1, "one watch from version 8")
    assert "the watch broke" in watched.reflector.last_error
    (again,) = server.of("GET", watch="true", resourceVersion="8")
    assert again.query["timeoutSeconds"] == "300"


def test_a_copy_that_is_watched_is_not_stale(serve: Serve, watch: Callable[..., Watched]) -> None:
    server, clock = serve(Script([page(7)], [])), Clock()
    watched = watch(server, clock=clock)
    eventually(lambda: watched.reflector._opened_at, "the watch to be open")
    clock.now += 1000
    assert watched.reflector.stale_seconds() == 0


@pytest.mark.parametrize("then", [status(403), status(503), status(410), Hang()])
def test_a_copy_ages_while_it_is_not_watched(serve: Serve, watch: Callable[..., Watched], then: Answer) -> None:
    clock, refused = Clock(), threading.Event()
    opened: list[Stream] = []

    def route(request: Request) -> Answer:
        if refused.is_set():
            return then
        if not request.query.get("watch"):
            return page(7)
        opened.append(Stream())
        return opened[-1]

    server = serve(route)
    timing = WatchTiming(first_backoff_seconds=0.01, cap_backoff_seconds=0.01)
    watched = watch(server, timing=timing, clock=clock)
    eventually(lambda: watched.reflector._opened_at, "the watch to be open")
    clock.now += 1000
    refused.set()
    before = len(server.requests)
    opened[0].end()
    eventually(lambda: len(server.requests) > before, "one more request")
    clock.now += 61
    assert watched.reflector.stale_seconds() == 61
    if isinstance(then, Hang):
        return  # nothing but a time-out ends that
    eventually(lambda: watched.reflector.last_error, "the failure to be noted")
    refused.clear()
    eventually(lambda: len(opened) > 1 and watched.reflector._opened_at, "the second connection")
    clock.now += 1  # a watch that is open for so long is one that works
    assert watched.reflector.stale_seconds() == 0
    assert watched.reflector.last_error == ""


def test_a_copy_ages_while_its_watches_end_at_once(serve: Serve, watch: Callable[..., Watched]) -> None:
    clock = Clock()

    def route(request: Request) -> Answer:
        if not request.query.get("watch"):
            return page(7)
        clock.now += 0.5
        ended = Stream()
        ended.end()
        return ended

    timing = WatchTiming(first_backoff_seconds=0.01, cap_backoff_seconds=0.01)
    watched = watch(serve(route), timing=timing, clock=clock)
    eventually(lambda: watched.reflector.stale_seconds() > 10, "a stale list")
    eventually(lambda: watched.reflector.last_error, "the failure to be noted")


def test_failures_are_spaced_by_growing_pauses(serve: Serve, watch: Callable[..., Watched]) -> None:
    answers: list[Answer] = [status(503) for _ in range(4)]
    server = serve(Script([*answers, page(7)], []))
    started = time.monotonic()
    watched = watch(server)
    assert watched.reflector.synced.wait(10)
    assert time.monotonic() - started >= 0.01 + 0.02 + 0.04 + 0.05
    assert watched.reflector.last_error == ""
    assert len(server.of("GET", limit="500")) == 5


def test_watches_that_end_at_once_are_spaced_too(serve: Serve, watch: Callable[..., Watched]) -> None:
    ended = Stream()
    ended.end()
    timing = WatchTiming(short_watch_seconds=1.0, first_backoff_seconds=0.05, cap_backoff_seconds=0.05)
    server = serve(Script([page(7)], [ended]))
    started = time.monotonic()
    watch(server, timing=timing)
    eventually(lambda: len(server.of("GET", watch="true")) == 2, "a second watch")
    assert time.monotonic() - started >= 0.05


@pytest.mark.parametrize("at", ["watch", "list"])
def test_stop_returns_at_once_although_the_thread_reads(serve: Serve, watch: Callable[..., Watched], at: str) -> None:
    server = serve(Script([page(7) if at == "watch" else Hang()], []))
    watched = watch(server, timing=WatchTiming())
    eventually(lambda: server.of("GET", watch="true") if at == "watch" else server.requests, "the request to end")
    if at == "watch":
        eventually(lambda: watched.reflector._stream, "the stream to be read")
    started = time.monotonic()
    watched.reflector.stop(timeout_seconds=60.0 if at == "watch" else 0.2)
    assert time.monotonic() - started < 5.0  # the read itself would last 330 and 30 s
    assert watched.reflector.last_error == ""


def test_one_bad_object_and_a_failing_handler_stop_nothing(serve: Serve) -> None:
    stream = Stream()
    server = serve(Script([page(7, pod("a", "Pending"))], [stream]))
    seen: queue.Queue[Change] = queue.Queue()

    def fragile(key: Key, old: str | None, new: str | None) -> None:
        seen.put((key, old, new))
        raise RuntimeError("the handler's own fault")

    reflector: Reflector[str] = Reflector(
        clients.for_url(server.url), PATH, project=phase_of, on_change=fragile, timing=QUICK
    )
    reflector.start()
    stream.send("MODIFIED", {"metadata": pod("a", "", 8)["metadata"]})  # no status: cannot be projected
    stream.send("ADDED", pod("b", "Pending", 9))
    assert [seen.get(timeout=10), seen.get(timeout=10)] == [change("a", None, "Pending"), change("b", None, "Pending")]
    assert reflector.items()["ns", "a"] == "Pending"  # what was known of it is kept
    reflector.stop()


def test_idle_connections_are_probed(serve: Serve) -> None:
    server = serve(Script([page(7)], []))
    api = clients.for_url(server.url)
    request(api, "GET", PATH)
    pool = api.rest_client.pool_manager.connection_from_url(server.url)
    connection: Any = pool._get_conn()
    assert connection.sock is not None
    tcp = [connection.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in PROBES]
    assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert tcp == [15, 5, 3, 1]
    connection.close()


def test_backoff_doubles_to_its_cap_with_jitter_and_resets() -> None:
    rolls = iter([0.0, 1.0, 0.5, 1.0, 0.0])
    backoff = Backoff(first_seconds=1.0, cap_seconds=3.0, jitter=lambda: next(rolls))
    assert [backoff.next_seconds() for _ in range(4)] == [0.5, 2.0, 2.25, 3.0]
    backoff.reset()
    assert backoff.next_seconds() == 0.5

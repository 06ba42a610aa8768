"""The reflector when nothing comes: silent and dead peers, the age of its copy, pauses after failures, and its end."""

import threading
import time
from collections.abc import Callable

import pytest

from kube.watch import WatchTiming
from tests.clock import Clock
from tests.kube.fake_api import Answer, FakeApi, Hang, Request, Stream, status
from tests.kube.watched import Script, Serve, Watched, bookmark, page
from tests.waiting import SECONDS, eventually

HASTY = WatchTiming(first_backoff_seconds=0.01, cap_backoff_seconds=0.01)


class Outage:
    """Lists and watches, and while it lasts one answer to everything."""

    def __init__(self, answer: Answer) -> None:
        self.opened: list[Stream] = []
        self._answer, self._lasts = answer, threading.Event()

    def __call__(self, request: Request) -> Answer:
        if self._lasts.is_set():
            return self._answer
        if not request.query.get("watch"):
            return page(7)
        self.opened.append(Stream())
        return self.opened[-1]

    def begin(self, server: FakeApi) -> None:
        """The open watch ends, and the next request is refused."""
        self._lasts.set()
        before = len(server.requests)
        self.opened[-1].end()
        eventually(lambda: len(server.requests) > before, "one more request")

    def end(self) -> None:
        self._lasts.clear()


def test_a_wholly_silent_watch_is_followed_by_a_list(serve: Serve, watch: Callable[..., Watched]) -> None:
    """A version from the future: 200 and silence, until the requested time-out."""

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
    clock, outage = Clock(), Outage(then)
    server = serve(outage)
    watched = watch(server, timing=HASTY, clock=clock)
    eventually(lambda: watched.reflector._opened_at, "the watch to be open")
    clock.now += 1000
    outage.begin(server)
    clock.now += 61
    assert watched.reflector.stale_seconds() == 61
    if isinstance(then, Hang):
        return  # nothing but a time-out ends that
    eventually(lambda: watched.reflector.last_error, "the failure to be noted")
    outage.end()
    eventually(lambda: len(outage.opened) > 1 and watched.reflector._opened_at, "the second connection")
    clock.now += 1  # a watch that is open for so long is one that works
    assert watched.reflector.stale_seconds() == 0
    assert watched.reflector.last_error == ""


@pytest.mark.parametrize("then", [status(503), status(410)])
def test_how_long_nothing_was_heard_is_reported(serve: Serve, watch: Callable[..., Watched], then: Answer) -> None:
    clock, outage = Clock(), Outage(then)
    server = serve(outage)
    watched = watch(server, timing=HASTY, clock=clock)
    eventually(lambda: watched.reflector._opened_at, "the watch to be open")
    clock.now += 1000
    outage.begin(server)
    assert sum(watched.gaps) == 0
    clock.now += 300
    outage.end()
    eventually(lambda: len(outage.opened) > 1, "the second watch")
    eventually(lambda: sum(watched.gaps) == 300, "the gap")


def test_a_copy_ages_while_its_watches_end_at_once(serve: Serve, watch: Callable[..., Watched]) -> None:
    clock = Clock()

    def route(request: Request) -> Answer:
        if not request.query.get("watch"):
            return page(7)
        clock.now += 0.5
        ended = Stream()
        ended.end()
        return ended

    watched = watch(serve(route), timing=HASTY, clock=clock)
    eventually(lambda: watched.reflector.stale_seconds() > 10, "a stale list")
    eventually(lambda: watched.reflector.last_error, "the failure to be noted")


def test_failures_are_spaced_by_growing_pauses(serve: Serve, watch: Callable[..., Watched]) -> None:
    answers: list[Answer] = [status(503) for _ in range(4)]
    server = serve(Script([*answers, page(7)], []))
    started = time.monotonic()
    watched = watch(server)
    assert watched.reflector.synced.wait(SECONDS)
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
    watched.reflector.stop(timeout_seconds=60.0 if at == "watch" else 0.2)
    reading = watched.reflector._thread.is_alive()  # the read itself would last 330 and 30 s
    assert reading == (at == "list"), "a watch is ended, a list only no longer waited for"
    assert watched.reflector.last_error == ""

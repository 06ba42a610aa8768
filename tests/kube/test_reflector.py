"""The reflector's copy: pages, events, bookmarks, expired versions and broken watches lose and repeat nothing."""

import queue
from collections.abc import Callable

from kube import clients
from kube.reflector import Key, Reflector
from tests.kube.fake_api import Answer, Stream, status
from tests.kube.watched import PATH, QUICK, Change, Script, Serve, Watched, bookmark, change, page, phase_of, pod
from tests.waiting import SECONDS, eventually


def test_pages_then_events(serve: Serve, watch: Callable[..., Watched]) -> None:
    stream = Stream()
    lists: list[Answer] = [page(7, pod("a", "Pending"), token="t1"), page(9, pod("b", "Running"))]
    server = serve(Script(lists, [stream]))
    watched = watch(server, fieldSelector="spec.nodeName=n")
    assert watched.next() == change("a", None, "Pending")
    assert watched.next() == change("b", None, "Running")
    assert watched.reflector.synced.wait(SECONDS)
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
    assert opened.query["resourceVersion"] == "7"  # of the first page: later pages may be older than their version
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
    assert watched.reflector.synced.wait(SECONDS)
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
    assert [seen.get(timeout=SECONDS), seen.get(timeout=SECONDS)] == [
        change("a", None, "Pending"),
        change("b", None, "Pending"),
    ]
    assert reflector.items()["ns", "a"] == "Pending"  # what was known of it is kept
    reflector.stop()

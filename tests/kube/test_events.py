"""Events: counted instead of repeated, and never in the caller's way."""

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kube import clients
from kube.events import BURST, EventRecorder, ObjectReference
from tests.kube.fake_api import Answer, FakeApi, Hang, LeaseStore, Request, Route, status
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Serve = Callable[[Route], FakeApi]
POD = ObjectReference(api_version="v1", kind="Pod", namespace="ns", name="p", uid="u1")
NODE = ObjectReference(api_version="v1", kind="Node", name="n", uid="u2")


@pytest.fixture
def record() -> Iterator[Callable[..., EventRecorder]]:
    started: list[EventRecorder] = []

    def start(server: FakeApi, **options: float) -> EventRecorder:
        recorder = EventRecorder(clients.for_url(server.url), "planner", **options)  # type: ignore[arg-type] # table
        recorder.start()
        started.append(recorder)
        return recorder

    yield start
    for recorder in started:
        recorder.stop(timeout_seconds=0.2)


def test_an_event_is_found_by_kubectl_describe(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    recorder = record(serve(store))
    recorder.emit(POD, "Warning", "NoRoom", "no node has room")
    recorder.emit(NODE, "Normal", "Cut", "2 slices")
    recorder.stop()
    of_pod, defaults = (store.items[path] for path in sorted(store.items, reverse=True))
    assert of_pod["metadata"]["namespace"] == "ns"
    assert of_pod["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "p",
        "uid": "u1",
    }
    assert (of_pod["type"], of_pod["reason"], of_pod["message"]) == ("Warning", "NoRoom", "no node has room")
    assert (of_pod["source"], of_pod["count"]) == ({"component": "planner"}, 1)
    assert defaults["metadata"]["namespace"] == "default"  # the API keeps those of cluster-scoped objects there
    assert "namespace" not in defaults["involvedObject"]


def test_repeats_are_one_event_that_counts(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    recorder = record(serve(store), quiet_seconds=0.0)
    for _ in range(3):
        recorder.emit(POD, "Warning", "NoRoom", "no node has room")
    recorder.emit(POD, "Warning", "NoRoom", "another sentence")
    recorder.stop()
    assert sorted(event["count"] for event in store.items.values()) == [1, 3]


def test_fast_repeats_are_written_together(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    server = serve(store)
    recorder = record(server, quiet_seconds=0.3)
    for _ in range(5):
        recorder.emit(POD, "Normal", "Same", "again")
    eventually(lambda: store.items, "the first Event")

    def counted() -> bool:
        recorder.emit(POD, "Normal", "Same", "again")
        return any(request.method == "PATCH" for request in server.requests)

    eventually(counted, "a count")
    recorder.stop()
    (event,) = store.items.values()
    assert event["count"] >= 6
    assert len([r for r in server.requests if r.method == "POST"]) == 1


def test_the_count_goes_on_after_a_restart(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    server = serve(store)
    first = record(server)
    first.emit(POD, "Normal", "Same", "once")
    first.stop()
    requests_before = len(server.requests)
    second = record(server, quiet_seconds=0.0)
    second.emit(POD, "Normal", "Same", "once")
    eventually(lambda: len(server.requests) == requests_before + 2, "a write without a read before it")
    second.emit(POD, "Normal", "Same", "once")
    second.stop()
    (event,) = store.items.values()
    assert event["count"] == 3
    assert [request.method for request in server.requests] == ["POST", "POST", "PATCH", "PATCH"]


def test_a_series_is_one_event_with_the_newest_message(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    recorder = record(serve(store), quiet_seconds=0.0)
    for message in ("7 GPUs are full", "8 GPUs are full"):
        recorder.emit(POD, "Warning", "NoCapacity", message, series="full")
    recorder.emit(POD, "Warning", "NoCapacity", "another", series="other")
    recorder.stop()
    found = sorted((event["message"], event["count"]) for event in store.items.values())
    assert found == [("8 GPUs are full", 2), ("another", 1)]


def test_a_repeat_within_the_quiet_time_is_written_after_it(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    recorder = record(serve(store), quiet_seconds=0.2)
    recorder.emit(POD, "Normal", "Same", "again")
    eventually(lambda: store.items, "the first Event")
    recorder.emit(POD, "Normal", "Same", "again")
    eventually(lambda: [event["count"] for event in store.items.values()] == [2], "the count 2")


def test_the_newest_event_is_the_last_one_emitted(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    server = serve(store := LeaseStore())
    recorder = record(server, quiet_seconds=60.0)
    for reason in ("MIGModeDisabled", "ChangeUnderWay", "MIGModeDisabled"):
        recorder.emit(POD, "Warning", reason, "a sentence")
        eventually(lambda: written(server) and written(server)[-1] == reason, "the Event to be written")  # noqa: B023 # called at once
    assert {event["reason"]: event["count"] for event in store.items.values()} == {
        "MIGModeDisabled": 2,
        "ChangeUnderWay": 1,
    }


def written(server: FakeApi) -> list[str]:
    """Reasons in the order in which their Events were written; a repeat's is in the Event's name only."""
    names = {
        request.body["metadata"]["name"]: request.body["reason"]
        for request in server.requests
        if request.method == "POST"
    }
    return [
        names[request.body["metadata"]["name"] if request.method == "POST" else request.path.rpartition("/")[2]]
        for request in server.requests
    ]


def test_many_events_at_once_are_spread_over_time(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    server = serve(LeaseStore())
    recorder = record(server, per_second=0.001)
    for number in range(int(BURST) + 50):
        recorder.emit(POD, "Normal", "Same", str(number))
    eventually(lambda: len(server.requests) >= BURST, "the whole burst")
    assert len(server.requests) == BURST
    assert recorder.dropped == 0


def test_an_event_that_expired_is_written_again(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()
    recorder = record(serve(store), quiet_seconds=0.0)
    recorder.emit(POD, "Normal", "Same", "again")
    eventually(lambda: store.items, "the first Event")
    with store.lock:
        store.items.clear()
    recorder.emit(POD, "Normal", "Same", "again")
    recorder.stop()
    assert [event["count"] for event in store.items.values()] == [1]


def test_a_hanging_api_neither_blocks_nor_raises(
    serve: Serve, record: Callable[..., EventRecorder], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = record(serve(lambda request: Hang()), queue_size=3)
    for number in range(20):
        recorder.emit(POD, "Normal", "Same", str(number))
    assert recorder.dropped >= 16
    assert caplog.messages == ["dropped 1 Events so far: they come faster than the API server takes them"]


def test_refusals_are_survived(serve: Serve, record: Callable[..., EventRecorder]) -> None:
    store = LeaseStore()

    def route(request: Request) -> Answer:
        refused = request.method == "POST" and request.body["reason"] == "Bad"
        return status(403, "Forbidden") if refused else store(request)

    recorder = record(serve(route))
    recorder.emit(POD, "Normal", "Bad", "refused")
    recorder.emit(POD, "Normal", "Good", "kept")
    recorder.stop()
    assert [event["reason"] for event in store.items.values()] == ["Good"]
    assert recorder.dropped == 1


def test_refusals_of_one_namespace_are_logged_once(
    serve: Serve, record: Callable[..., EventRecorder], caplog: pytest.LogCaptureFixture
) -> None:
    refused, store = threading.Event(), LeaseStore()
    refused.set()

    def route(request: Request) -> Answer:
        of_pod = request.method == "POST" and request.body["metadata"]["namespace"] == "ns"
        return (
            status(403, f"may not create {request.body['metadata']['name']}")
            if of_pod and refused.is_set()
            else store(request)
        )

    recorder = record(serve(route))

    def emit(prefix: str) -> None:
        before = len(store.items) + recorder.dropped
        for number in range(20):
            recorder.emit(POD, "Normal", "Same", f"{prefix} {number}")
            recorder.emit(NODE, "Normal", "Same", f"{prefix} {number}")
        eventually(lambda: len(store.items) + recorder.dropped == before + 40, "all Events")

    emit("first")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    refused.clear()
    emit("second")
    refused.set()
    emit("third")
    assert recorder.dropped == 40
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "event Same about p was not written, and others may not be"
    ] * 2


def test_refusals_of_namespaces_that_are_gone_are_forgotten(
    serve: Serve, record: Callable[..., EventRecorder], caplog: pytest.LogCaptureFixture
) -> None:
    recorder, dropped = record(serve(lambda _request: status(403)), queue_size=1), itertools.count(1)

    def refuse(namespace: str) -> None:
        number = next(dropped)
        recorder.emit(replace(POD, namespace=namespace, uid=namespace), "Normal", "Same", str(number))
        eventually(lambda: recorder.dropped == number, "the refusal")

    for name in ("a", "a", "b", "c", "d", "e", "a"):
        refuse(name)
    eventually(lambda: len(caplog.messages) == 6, "a line each time but the second", seen=lambda: caplog.messages)


@pytest.mark.parametrize(
    "name", ["p" * 253, "p" * 235 + "-" + "p" * 17, "p" * 235 + "." + "p" * 17], ids=["p", "-", "."]
)
def test_long_names_stay_within_the_limit(serve: Serve, record: Callable[..., EventRecorder], name: str) -> None:
    """Where they are cut they must not end in what the API server takes in the middle alone."""
    store = LeaseStore()
    recorder = record(serve(store))
    recorder.emit(
        ObjectReference(api_version="v1", kind="Pod", namespace="ns", name=name, uid="u"),
        "Normal",
        "R",
        "m" * 2000,
    )
    recorder.stop()
    (event,) = store.items.values()
    assert len(event["metadata"]["name"]) in (252, 253)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", event["metadata"]["name"])
    assert len(event["message"]) == 1024

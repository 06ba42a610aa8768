"""Which candidate leads, and what happens when the API refuses, hangs or goes away."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube import clients, leases
from kube.leases import Elector, Heartbeat, LeaseTiming, lease_path
from kube.timestamps import micro_time
from tests.kube.fake_api import Answer, FakeApi, Hang, LeaseStore, Request, Route, status
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.slow

Serve = Callable[[Route], FakeApi]
TIMING = LeaseTiming(lease_seconds=4.0, renew_seconds=3.0, retry_seconds=0.05)
PATH = lease_path("system", "controller")


class Store(LeaseStore):
    """A lease store that can fail on demand."""

    trouble: Answer | None = None

    def __call__(self, request: Request) -> Answer:
        return self.trouble or super().__call__(request)


class Candidate:
    def __init__(self, server: FakeApi, identity: str, timing: LeaseTiming = TIMING) -> None:
        self.started, self.stopped = threading.Event(), threading.Event()
        self.elector = Elector(
            clients.for_url(server.url),
            namespace="system",
            name="controller",
            identity=identity,
            on_started=self.started.set,
            on_stopped=self.stopped.set,
            timing=timing,
        )
        self.elector.start()


@pytest.fixture
def join() -> Iterator[Callable[..., Candidate]]:
    candidates: list[Candidate] = []

    def start(server: FakeApi, identity: str, timing: LeaseTiming = TIMING) -> Candidate:
        candidates.append(Candidate(server, identity, timing))
        return candidates[-1]

    yield start
    for candidate in candidates:
        candidate.elector.stop()


def test_one_leads_and_the_next_takes_over_when_it_stops(serve: Serve, join: Callable[..., Candidate]) -> None:
    store = Store()
    server = serve(store)
    patient = LeaseTiming(lease_seconds=60, renew_seconds=40, retry_seconds=0.05)
    first = join(server, "a", patient)
    assert first.started.wait(SECONDS)
    second = join(server, "b", patient)
    eventually(lambda: len([r for r in server.requests if r.method == "GET"]) > 5, "more than five reads of the Lease")
    assert not second.elector.leading
    renewed = store.items[PATH]["spec"]
    assert renewed["holderIdentity"] == "a"
    assert (renewed["leaseTransitions"], renewed["leaseDurationSeconds"]) == (0, 60)

    first.elector.stop()
    assert first.stopped.is_set()
    assert not first.elector.leading
    assert second.started.wait(SECONDS)  # far less than the 60 s that the lease would have lasted
    assert store.items[PATH]["spec"]["leaseTransitions"] == 1


def test_a_dead_leader_is_waited_out(serve: Serve, join: Callable[..., Candidate]) -> None:
    store = Store()
    store.items[PATH] = {
        "metadata": {"name": "controller", "resourceVersion": "0"},
        "spec": {"holderIdentity": "dead", "renewTime": "2001-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1},
    }
    started = time.monotonic()
    candidate = join(serve(store), "b")
    assert candidate.started.wait(SECONDS)
    assert time.monotonic() - started >= 1.0  # its clock may be wrong: the age of renewTime proves nothing


@pytest.mark.parametrize("trouble", [status(500), status(403, "Forbidden"), Hang()], ids=["500", "403", "hang"])
def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(
    serve: Serve, join: Callable[..., Candidate], trouble: Answer
) -> None:
    store = Store()
    candidate = join(serve(store), "a", LeaseTiming(lease_seconds=60, renew_seconds=3.0, retry_seconds=0.05))
    assert candidate.started.wait(SECONDS)
    store.trouble = trouble
    eventually(lambda: not candidate.elector.leading, "the candidate to step down", seconds=60)
    assert candidate.stopped.wait(SECONDS)
    candidate.started.clear()
    store.trouble = None
    if not isinstance(trouble, Hang):
        assert candidate.started.wait(SECONDS)  # and leads again when the API is back


def test_a_short_failure_does_not_cost_the_lead(serve: Serve, join: Callable[..., Candidate]) -> None:
    store = Store()
    server = serve(store)
    candidate = join(server, "a", LeaseTiming(lease_seconds=60, renew_seconds=40, retry_seconds=0.02))
    assert candidate.started.wait(SECONDS)
    store.trouble = status(503)
    count = len(server.requests)
    eventually(lambda: len(server.requests) > count + 3, "four more requests")
    store.trouble = None
    assert candidate.elector.leading
    assert not candidate.stopped.is_set()


def test_a_lost_race_is_not_a_lead(serve: Serve, join: Callable[..., Candidate]) -> None:
    """Another client writes between our read and our write, every time."""

    def route(request: Request) -> Answer:
        return status(409, "Conflict") if request.method in {"PUT", "POST"} else status(404, "NotFound")

    server = serve(route)
    candidate = join(server, "a")
    eventually(
        lambda: len([r for r in server.requests if r.method == "POST"]) > 2, "three attempts to create the Lease"
    )
    assert not candidate.elector.leading
    assert not candidate.started.is_set()


def test_a_usurper_ends_the_lead_at_once(serve: Serve, join: Callable[..., Candidate]) -> None:
    store = Store()
    candidate = join(serve(store), "a", LeaseTiming(lease_seconds=60, renew_seconds=40, retry_seconds=0.02))
    assert candidate.started.wait(SECONDS)
    with store.lock:
        spec = {**store.items[PATH]["spec"], "holderIdentity": "b", "renewTime": micro_time()}
        store.items[PATH] = {"metadata": {"name": "controller", "resourceVersion": "999"}, "spec": spec}
    assert candidate.stopped.wait(SECONDS)


def heartbeat(server: FakeApi, renew_seconds: float = 600.0, **more: Any) -> Heartbeat:
    return Heartbeat(
        clients.for_url(server.url),
        namespace="system",
        name="node-1",
        identity="agent-1",
        manager="agent",
        renew_seconds=renew_seconds,
        **more,
    )


def test_heartbeat_creates_renews_and_survives_failures(serve: Serve) -> None:
    store = Store()
    server = serve(store)
    heart = heartbeat(server, lease_seconds=40, renew_seconds=0.05)
    heart.start()
    path = lease_path("system", "node-1")
    eventually(lambda: path in store.items, "the heartbeat's Lease")
    first = store.items[path]["spec"]["renewTime"]
    store.trouble = status(500)
    eventually(lambda: heart.last_error, "the failure to be noted")
    store.trouble = None
    eventually(lambda: store.items[path]["spec"]["renewTime"] > first, "the next beat")
    heart.stop()
    assert store.items[path]["spec"]["holderIdentity"] == "agent-1"
    assert server.requests[0].query == {"fieldManager": "agent", "force": "true"}


class HeldBackError(Exception):
    """There must be no heartbeat now."""


def test_a_heartbeat_that_was_held_back_goes_out_as_soon_as_it_may(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RETRY_SECONDS", 600.0)
    held = [True]

    def before() -> None:
        if held[0]:
            raise HeldBackError

    heart = heartbeat(serve(Store()), before=before)
    heart.start()
    eventually(lambda: heart.last_error, "the failure to be noted")
    assert heart.taken == 0

    held[0] = False
    heart.retry_now()

    eventually(lambda: heart.taken == 1, "the beat that was taken")
    eventually(lambda: not heart.last_error, "the failure to be forgotten")
    heart.retry_now()  # nothing failed: no heartbeat before its time
    assert not heart._due.is_set()
    heart.stop()


def test_a_heartbeat_that_failed_is_tried_again_before_the_next_is_due(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RETRY_SECONDS", 0.05)
    store = Store()
    store.trouble = status(500)
    heart = heartbeat(serve(store))
    heart.start()
    eventually(lambda: heart.last_error, "the failure to be noted")

    store.trouble = None

    eventually(lambda: heart.taken == 1, "the beat that was taken")
    heart.stop()


def test_a_heartbeat_can_be_requested_at_once(serve: Serve) -> None:
    heart = heartbeat(serve(Store()))
    heart.start()
    eventually(lambda: heart.taken == 1, "the first beat")

    heart.beat_now()

    eventually(lambda: heart.taken == 2, "the second beat")
    heart.stop()


def test_annotations_of_the_lease_come_and_go(serve: Serve) -> None:
    server = serve(Store())
    written = {"gpuplan.dev/x": "y"}
    heart = heartbeat(server, annotations=lambda: written)

    heart.beat()
    written.clear()
    heart.beat()

    first, second = (request.body["metadata"] for request in server.requests)
    assert first == {"name": "node-1", "namespace": "system", "annotations": {"gpuplan.dev/x": "y"}}
    assert second == {"name": "node-1", "namespace": "system"}

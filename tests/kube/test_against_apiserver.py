"""The same plumbing against the sandbox's API server, which answers as real ones were seen to."""

import queue
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from kube import apply, clients, errors
from kube.events import EventRecorder, ObjectReference
from kube.leases import Elector, Heartbeat, LeaseTiming, lease_path
from kube.reflector import Key, Reflector
from kube.watch import WatchTiming
from tests.apiserver import ApiServer, exists
from tests.builders.objects import config_map
from tests.waiting import SECONDS, eventually

MAPS = "/api/v1/namespaces/default/configmaps"
QUICK = WatchTiming(first_backoff_seconds=0.01, cap_backoff_seconds=0.1, short_watch_seconds=0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server: ApiServer) -> ApiClient:
    return clients.for_url(server.url)


def test_a_kubeconfig_leads_to_the_server(server: ApiServer, tmp_path: Any) -> None:
    path = tmp_path / "config"
    path.write_text(server.kubeconfig())
    assert yaml.safe_load(path.read_text())["current-context"] == "sandbox"
    api = clients.load(str(path))
    assert apply.get(api, "/api/v1/namespaces/default")["metadata"]["name"] == "default"
    assert apply.get(clients.load(str(path), "sandbox"), "/version")["major"]


def test_apply_creates_and_returns_the_object(api: ApiClient) -> None:
    made = apply.apply(api, f"{MAPS}/a", config_map("a", {"x": "1"}), manager="one")
    assert (made["data"], bool(made["metadata"]["uid"])) == ({"x": "1"}, True)
    again = apply.apply(api, f"{MAPS}/a", config_map("a", {"x": "1"}), manager="one")
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    with pytest.raises(errors.Conflict) as caught:
        apply.apply(api, f"{MAPS}/a", config_map("a", {"x": "2"}), manager="two")
    assert 'conflict with "one"' in caught.value.message
    forced = apply.apply(api, f"{MAPS}/a", config_map("a", {"x": "2"}), manager="two", force=True)
    assert forced["data"] == {"x": "2"}


def test_stale_writes_are_conflicts(api: ApiClient) -> None:
    made = apply.create(api, MAPS, config_map("b", {"x": "1"}))
    with pytest.raises(errors.AlreadyExists):
        apply.create(api, MAPS, config_map("b", {}))
    apply.merge_patch(api, f"{MAPS}/b", {"data": {"x": "2"}})
    with pytest.raises(errors.Conflict):
        apply.replace(api, f"{MAPS}/b", made)
    with pytest.raises(errors.Conflict):
        apply.delete(api, f"{MAPS}/b", uid="someone-else")
    apply.delete(api, f"{MAPS}/b", uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        apply.get(api, f"{MAPS}/b")


def test_json_patch_with_a_failed_test_is_invalid(api: ApiClient) -> None:
    apply.create(api, MAPS, config_map("c", {"x": "1"}))
    operations = [
        {"op": "test", "path": "/data/x", "value": "0"},
        {"op": "replace", "path": "/data/x", "value": "2"},
    ]
    with pytest.raises(errors.Invalid):
        apply.json_patch(api, f"{MAPS}/c", operations)
    operations[0]["value"] = "1"
    assert apply.json_patch(api, f"{MAPS}/c", operations)["data"] == {"x": "2"}


def test_status_is_a_field_of_its_own(api: ApiClient) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    apply.create(api, "/api/v1/nodes", node)
    patched = apply.apply_status(api, "/api/v1/nodes/n", {**node, "status": {"capacity": {"cpu": "4"}}}, manager="m")
    assert patched["status"]["capacity"] == {"cpu": "4"}
    with pytest.raises(errors.NotFound):
        apply.apply_status(
            api, "/api/v1/nodes/x", {**node, "metadata": {"name": "x"}, "status": {"capacity": {}}}, manager="m"
        )


class Follower:
    def __init__(self, api: ApiClient, path: str) -> None:
        self.seen: dict[Key, str] = {}
        self.changes: queue.Queue[tuple[Key, str | None, str | None]] = queue.Queue()
        self.reflector: Reflector[str] = Reflector(
            api, path, project=lambda item: str(item["data"]["x"]), on_change=self.changed, timing=QUICK
        )

    def changed(self, key: Key, old: str | None, new: str | None) -> None:
        assert self.seen.get(key) == old  # the old object of a change is the one reported before
        self.seen = {**self.seen, key: new} if new is not None else {k: v for k, v in self.seen.items() if k != key}


def test_a_reflector_lives_through_drops_and_compaction(server: ApiServer, api: ApiClient) -> None:
    apply.create(api, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "r"}})
    maps = "/api/v1/namespaces/r/configmaps"

    def put(name: str, x: str) -> None:
        body = config_map(name, {"x": x})
        apply.apply(api, f"{maps}/{name}", {**body, "metadata": {"name": name, "namespace": "r"}}, manager="m")

    for number in range(520):  # more than one page
        put(f"p{number}", "0")
    follower = Follower(api, maps)
    follower.reflector.start()
    assert follower.reflector.synced.wait(SECONDS)
    assert len(follower.seen) == 520

    for round_ in range(1, 4):
        put("p0", str(round_))
        apply.delete(api, f"{maps}/p{round_}")
        put(f"new{round_}", str(round_))
        server.drop_watches()
        put("p1000", str(round_))
        server.compact()
        put("p1001", str(round_))
        expected = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): item["data"]["x"]
            for item in apply.get(api, maps)["items"]
        }
        eventually(lambda expected=expected: follower.seen == expected, "the follower to have seen it")  # type: ignore[misc] # a bound loop variable
        assert dict(follower.reflector.items()) == expected
    follower.reflector.stop()
    assert follower.reflector.last_error == ""


def test_election_and_heartbeat(api: ApiClient) -> None:
    led: queue.Queue[str] = queue.Queue()
    timing = LeaseTiming(lease_seconds=30, renew_seconds=20, retry_seconds=0.05)
    electors = [
        Elector(
            api,
            namespace="kube-system",
            name="e",
            identity=name,
            on_started=lambda name=name: led.put(name),  # type: ignore[misc] # a bound loop variable
            on_stopped=lambda: None,
            timing=timing,
        )
        for name in ("a", "b")
    ]
    for elector in electors:
        elector.start()
    first = led.get(timeout=SECONDS)
    assert [e.leading for e in electors] == [e.identity == first for e in electors]
    next(e for e in electors if e.identity == first).stop()
    assert led.get(timeout=SECONDS) != first
    for elector in electors:
        elector.stop()

    heart = Heartbeat(api, namespace="kube-system", name="h", identity="i", manager="agent", renew_seconds=0.05)
    heart.start()
    eventually(lambda: exists(api, lease_path("kube-system", "h")), "the Lease")
    first_beat = apply.get(api, lease_path("kube-system", "h"))["spec"]["renewTime"]
    eventually(
        lambda: apply.get(api, lease_path("kube-system", "h"))["spec"]["renewTime"] > first_beat, "the next beat"
    )
    heart.stop()
    assert heart.last_error == ""


def test_events_are_written_and_counted(api: ApiClient) -> None:
    about = ObjectReference(api_version="v1", kind="ConfigMap", name="about", uid="u", namespace="default")
    recorder = EventRecorder(api, "tester", quiet_seconds=0.0)
    recorder.start()
    for _ in range(3):
        recorder.emit(about, "Warning", "Reason", "a sentence")
    recorder.emit(
        ObjectReference(api_version="v1", kind="Node", name="n", uid="uid-of-n"), "Normal", "Other", "of a node"
    )
    recorder.stop()
    assert recorder.dropped == 0
    events = apply.get(api, "/api/v1/namespaces/default/events")["items"]
    counts = {event["reason"]: event["count"] for event in events if event["source"]["component"] == "tester"}
    assert counts == {"Reason": 3, "Other": 1}

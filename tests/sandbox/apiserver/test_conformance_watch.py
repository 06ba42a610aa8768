"""Conformance: lists and watches: versions, pages, selectors, bookmarks, 410, the future."""

import time
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.sandbox.apiserver.probe import MERGE, Http, Kubectl, Plans
from tests.waiting import SECONDS, eventually

CONFIGMAPS = "/api/v1/namespaces/gpuplan-conformance/configmaps"
PODS = "/api/v1/namespaces/gpuplan-conformance/pods"


def config_map(http: Http, name: str, **labels: str) -> str:
    """Create one; its version."""
    return http("POST", CONFIGMAPS, {"metadata": {"name": name, "labels": labels}}).version


def names(events: list[Any]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@pytest.fixture(autouse=True)
def _clean(http: Http, namespace: str) -> None:
    http.clear(CONFIGMAPS)


def test_events_come_in_order_from_a_version(http: Http) -> None:
    start = http("GET", CONFIGMAPS).version
    config_map(http, "w")
    http("PATCH", f"{CONFIGMAPS}/w", {"data": {"a": "1"}}, content_type=MERGE)
    http("DELETE", f"{CONFIGMAPS}/w")

    events = http.watch(CONFIGMAPS, resourceVersion=start, fieldSelector="metadata.name=w", count=3)

    assert names(events) == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(start)


def test_a_watch_without_a_version_starts_with_what_there_is(http: Http) -> None:
    config_map(http, "there")

    started = time.monotonic()
    events = http.watch(CONFIGMAPS, fieldSelector="metadata.name=there", timeoutSeconds=1)

    assert names(events) == [("ADDED", "there")]
    assert time.monotonic() - started > 0.5


def test_an_object_leaves_and_enters_a_selection(http: Http) -> None:
    config_map(http, "leaves", odd="1")
    config_map(http, "enters")
    start = http("GET", CONFIGMAPS).version
    http("PATCH", f"{CONFIGMAPS}/leaves", {"metadata": {"labels": {"odd": None}}}, content_type=MERGE)
    http("PATCH", f"{CONFIGMAPS}/enters", {"metadata": {"labels": {"odd": "1"}}}, content_type=MERGE)
    http("DELETE", f"{CONFIGMAPS}/leaves")

    events = http.watch(CONFIGMAPS, resourceVersion=start, labelSelector="odd=1", count=2)

    assert names(events) == [("DELETED", "leaves"), ("ADDED", "enters")]
    assert int(events[0]["object"]["metadata"]["resourceVersion"]) > int(start)


def test_one_object_is_watched_by_its_name(http: Http) -> None:
    start = config_map(http, "mine")
    config_map(http, "other")
    http("DELETE", f"{CONFIGMAPS}/mine")

    events = http.watch(CONFIGMAPS, resourceVersion=start, fieldSelector="metadata.name=mine", count=1)

    assert names(events) == [("DELETED", "mine")]


def test_a_watch_from_the_future_is_silent(http: Http) -> None:
    future = int(http("GET", CONFIGMAPS).version) + 1_000_000

    started = time.monotonic()
    events = http.watch(CONFIGMAPS, resourceVersion=future, timeoutSeconds=1, allowWatchBookmarks="true")

    assert events == []
    assert time.monotonic() - started > 0.5


def test_a_list_from_the_future_waits_and_gives_up(http: Http) -> None:
    future = int(http("GET", CONFIGMAPS).version) + 1_000_000

    answer = http("GET", CONFIGMAPS, resourceVersion=future)

    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert f"Too large resource version: {future}, current:" in answer.message


def test_pages_are_consistent(http: Http) -> None:
    for number in range(5):
        config_map(http, f"p{number}", page="1")
    first = http("GET", CONFIGMAPS, limit=2, labelSelector="page=1").body
    http("DELETE", f"{CONFIGMAPS}/p3")
    config_map(http, "p31", page="1")

    rest: list[str] = []
    token = first["metadata"]["continue"]
    while token:
        page = http("GET", CONFIGMAPS, **{"limit": 2, "labelSelector": "page=1", "continue": token}).body
        rest += [item["metadata"]["name"] for item in page["items"]]
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        token = page["metadata"].get("continue")

    assert [item["metadata"]["name"] for item in first["items"]] == ["p0", "p1"]
    assert rest == ["p2", "p3", "p4"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("n=1", ["l1"]),
        ("n==1", ["l1"]),
        ("n!=1,all", ["l0", "l2", "l3"]),
        ("n in (0,3)", ["l0", "l3"]),
        ("all, n notin (0)", ["l1", "l2", "l3"]),
        ("odd", ["l1", "l3"]),
        ("all,!odd", ["l0", "l2"]),
    ],
)
def test_label_selectors(http: Http, selector: str, found: list[str]) -> None:
    for number in range(4):
        odd = {"odd": "1"} if number % 2 else {}
        config_map(http, f"l{number}", n=str(number), all="1", **odd)

    items = http("GET", CONFIGMAPS, labelSelector=selector).body["items"]

    assert [item["metadata"]["name"] for item in items] == found


def test_field_selectors_of_pods(http: Http, core: Any, namespace: str) -> None:
    for name in ("f0", "f1"):
        spec = {"containers": [{"name": "c", "image": "busybox:1"}], "schedulerName": "other-scheduler"}
        http("POST", PODS, {"metadata": {"name": name}, "spec": spec})

    def found(selector: str) -> list[str]:
        return [pod.metadata.name for pod in core.list_namespaced_pod(namespace, field_selector=selector).items]

    assert found("metadata.name=f1") == ["f1"]
    assert found("spec.nodeName=,status.phase=Pending,spec.schedulerName=other-scheduler") == ["f0", "f1"]
    assert found("metadata.name!=f0,spec.nodeName!=n") == ["f1"]
    with pytest.raises(ApiException) as caught:
        found("spec.foo=1")
    assert caught.value.status == 400
    http.clear(PODS)


def test_kubectl_watches(kubectl: Kubectl, plans: Plans) -> None:
    plans.create("n1")
    process = kubectl.start("get", "cardplans.conformance.example.com", "-w")
    assert process.stdout is not None
    try:
        shown = [process.stdout.readline(), process.stdout.readline()]
        plans.http.patch(plans.path("n1", "status"), {"status": {"cards": 77}})
        shown.append(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate()

    assert shown[0].split()[0] == "NAME"
    assert [line.split()[0] for line in shown[1:]] == ["n1", "n1"]
    assert "77" in shown[2]


def test_kubectl_delete_waits_until_it_is_gone(kubectl: Kubectl, plans: Plans) -> None:
    plans.create("n1")
    plans.http.patch(plans.path("n1"), {"metadata": {"finalizers": ["example.com/wait"]}})
    process = kubectl.start("delete", "cardplans.conformance.example.com", "n1")
    try:
        eventually(lambda: "deletionTimestamp" in plans.get("n1")["metadata"], "the plan is being deleted")
        waiting = process.poll() is None
        plans.http.patch(plans.path("n1"), {"metadata": {"finalizers": None}})
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()

    assert waiting
    assert "deleted" in output

"""The server as a thing of this process: its life, its faults, what it forgets. Not part of the conformance list."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
import yaml
from kubernetes import client

from tests.apiserver import ApiServer, Delay, Disconnect, Refuse
from tests.sandbox.apiserver.probe import CARDPLANS, DEFINITION_FILE, Http, Plans

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def probe(server: ApiServer) -> Http:
    configuration = client.Configuration()
    configuration.host = server.url
    return Http(client.ApiClient(configuration))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(watch_window=20, bookmark_seconds=0.2) as running:
        yield running


@pytest.fixture
def http(server: ApiServer) -> Iterator[Http]:
    found = probe(server)
    yield found
    found.close()


def make(http: Http, *names: str) -> str:
    """Create config maps; the version of the last."""
    version = ""
    for name in names:
        version = http("POST", CONFIGMAPS, {"metadata": {"name": name}}).version
    return version


def test_it_listens_on_loopback_and_says_where(server: ApiServer, http: Http) -> None:
    config = yaml.safe_load(server.kubeconfig())

    assert server.url.startswith("http://127.0.0.1:")
    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert http("GET", "/readyz").body == "ok"


def test_a_taken_port_is_reported(server: ApiServer) -> None:
    with pytest.raises(OSError, match="address already in use"):
        ApiServer(int(server.url.rpartition(":")[2])).start()


def test_stopping_ends_watches(http: Http, server: ApiServer) -> None:
    response = urllib3.PoolManager().request("GET", f"{server.url}{CONFIGMAPS}?watch=1", preload_content=False)

    server.stop()

    assert response.read() == b"", "the watch ended, and not because its reader did"


def test_the_first_namespaces_and_priorities_are_there(http: Http) -> None:
    namespaces = {item["metadata"]["name"] for item in http("GET", "/api/v1/namespaces").body["items"]}

    assert namespaces == {"default", "kube-node-lease", "kube-public", "kube-system"}
    assert http("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").body["value"] == 2_000_001_000


def test_versions_start_at_the_clock(http: Http) -> None:
    assert abs(int(make(http, "a")) / 1000 - time.time()) < 60


def test_a_client_that_outlives_a_restart_gets_410() -> None:
    with ApiServer() as first:
        http = probe(first)
        old = http("GET", "/api/v1/namespaces/default").version
        http.close()
    with ApiServer() as second:
        http = probe(second)
        events = http.watch(CONFIGMAPS, resourceVersion=old, count=1)
        http.close()

    assert events[0]["type"] == "ERROR"
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


def test_compaction_expires_old_watches(server: ApiServer, http: Http) -> None:
    start = make(http, "a")
    make(http, "b")

    server.compact()
    events = http.watch(CONFIGMAPS, resourceVersion=start)

    assert [event["type"] for event in events] == ["ERROR"]
    assert events[0]["object"]["message"].startswith(f"too old resource version: {start} (")


def test_the_history_is_bounded(http: Http) -> None:
    start = make(http, "a")
    make(http, *(f"m{number}" for number in range(25)))

    assert http.watch(CONFIGMAPS, resourceVersion=start)[0]["object"]["code"] == 410
    late = make(http, "late")
    assert http.watch(CONFIGMAPS, resourceVersion=int(late) - 1, count=1)[0]["object"]["metadata"]["name"] == "late"


def test_a_page_after_compaction_is_expired(server: ApiServer, http: Http) -> None:
    make(http, "a", "b", "c")
    token = http("GET", CONFIGMAPS, limit=1).body["metadata"]["continue"]
    make(http, "d")
    server.compact()

    expired = http("GET", CONFIGMAPS, **{"limit": 5, "continue": token})

    assert (expired.status, expired.body["reason"]) == (410, "Expired")


def test_bookmarks_follow_the_versions_of_other_kinds(http: Http) -> None:
    start = make(http, "a")
    other = http("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}).version

    events = http.watch("/api/v1/pods", resourceVersion=start, allowWatchBookmarks="true", count=1)

    assert events[0]["type"] == "BOOKMARK"
    assert int(events[0]["object"]["metadata"]["resourceVersion"]) >= int(other)


def test_dropped_watches_end(server: ApiServer) -> None:
    pool = urllib3.PoolManager(num_pools=2, maxsize=2)
    responses = [
        pool.request("GET", f"{server.url}{CONFIGMAPS}?watch=1&resourceVersion=0", preload_content=False)
        for _ in range(2)
    ]

    assert server.drop_watches() == 2
    assert [response.read() for response in responses] == [b"", b""]
    pool.clear()


def test_aborted_watches_break(server: ApiServer) -> None:
    pool = urllib3.PoolManager()
    response = pool.request("GET", f"{server.url}{CONFIGMAPS}?watch=1", preload_content=False)

    assert server.drop_watches(abort=True) == 1
    with pytest.raises(urllib3.exceptions.HTTPError):
        response.read()
    pool.clear()


def test_a_deleted_definition_ends_its_watches(http: Http) -> None:
    crd = yaml.safe_load(DEFINITION_FILE.read_text())
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    http("POST", crds, crd)
    start = http("POST", CARDPLANS, Plans(http).body("n1")).version
    pool = urllib3.PoolManager()
    watch = pool.request("GET", f"{http.url}{CARDPLANS}?watch=1&resourceVersion={start}", preload_content=False)

    http("DELETE", f"{crds}/{crd['metadata']['name']}")

    events = [json.loads(line) for line in watch.read().splitlines()]
    assert [event["type"] for event in events] == ["DELETED"]
    pool.clear()


def test_faults_refuse_delay_and_cut(server: ApiServer, http: Http) -> None:
    effects: dict[str, Any] = {
        "/refused": Refuse(code=503, reason="ServiceUnavailable", message="not now"),
        "/slow": Delay(seconds=0.2),
        "/cut": Disconnect(),
    }
    server.faults.append(lambda request: effects.get(request.path))

    refused = http("GET", "/refused")
    started = time.monotonic()
    slow = http("GET", "/slow")

    assert (refused.status, refused.body["reason"], refused.message) == (503, "ServiceUnavailable", "not now")
    assert slow.status == 404
    assert time.monotonic() - started >= 0.2
    with pytest.raises(urllib3.exceptions.HTTPError):
        http("GET", "/cut")


def test_a_write_may_succeed_unseen(server: ApiServer, http: Http) -> None:
    server.faults.append(lambda request: Disconnect(after_write=True) if request.method == "POST" else None)

    with pytest.raises(urllib3.exceptions.HTTPError):
        make(http, "a")

    assert http("GET", f"{CONFIGMAPS}/a").status == 200


def test_a_workload_is_created_with_a_warning(server: ApiServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "w"}, "spec": spec}
    answer = urllib3.request("POST", f"{server.url}/apis/apps/v1/namespaces/default/replicasets", json=body, timeout=60)

    assert answer.status == 201
    assert answer.headers["Warning"] == (
        '299 - "No controller acts on this ReplicaSet in the sandbox. Create Pods, or use a real cluster."'
    )


UNSUPPORTED = [
    pytest.param("POST", CONFIGMAPS, b"k8s\0", 415, "kubectl create ... --dry-run=client", id="protobuf"),
    pytest.param("DELETE", CONFIGMAPS, None, 405, "does not allow this method", id="a collection deleted at once"),
    pytest.param("GET", "/apis", None, 406, "aggregated discovery only", id="old discovery"),
    pytest.param("GET", f"{CONFIGMAPS}?watch=1&sendInitialEvents=true", None, 422, "WatchList", id="WatchList"),
    pytest.param(
        "GET", f"{CONFIGMAPS}?resourceVersion=1&resourceVersionMatch=Exact", None, 400, "newest state only", id="Exact"
    ),
    pytest.param("POST", "/apis/apps/v1/namespaces/default/deployments", b"{}", 404, "could not find", id="kind"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), UNSUPPORTED)
def test_what_is_not_supported_is_refused_with_a_reason(
    server: ApiServer, *, method: str, path: str, body: bytes | None, status: int, text: str
) -> None:
    answer = urllib3.request(method, server.url + path, body=body, timeout=60)

    assert answer.status == status
    assert text in answer.json()["message"]


@pytest.mark.parametrize("word", ["oneOf", "multipleOf", "uniqueItems", "x-kubernetes-embedded-resource"])
def test_a_schema_that_cannot_be_evaluated_is_refused(http: Http, word: str) -> None:
    crd = yaml.safe_load(DEFINITION_FILE.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["tier"][word] = [{"pattern": "a"}] if word == "oneOf" else True

    answer = http("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)

    assert answer.status == 422
    assert f"properties[tier].{word}: Forbidden: not supported in the sandbox" in answer.message


def test_a_mistake_of_the_server_is_a_status(server: ApiServer, http: Http) -> None:
    server.faults.append(lambda request: 1 / 0)  # type: ignore[arg-type,return-value]  # a broken fault stands in

    answer = http("GET", "/healthz")

    assert (answer.status, answer.body["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in answer.message

"""Conformance: pods, nodes, leases and events as daily use meets them."""

import datetime
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.builders.objects import binding
from tests.sandbox.apiserver.probe import Http, Kubectl

NODE = "conformance-bound"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1", "resources": {"limits": {"cpu": "1", "nvidia.com/mig-1g.10gb": 1}}}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}


@pytest.fixture
def pods(http: Http, namespace: str) -> Any:
    path = f"/api/v1/namespaces/{namespace}/pods"
    yield path
    http.clear(path)


@pytest.fixture
def node(http: Http) -> Any:
    http("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
    yield NODE
    http("DELETE", f"/api/v1/nodes/{NODE}")


def bind(http: Http, pods: str, name: str) -> int:
    return http("POST", f"{pods}/{name}/binding", binding(name, NODE)).status


def test_a_new_pod_is_completed(http: Http, pods: str) -> None:
    made = http("POST", pods, pod("p", schedulerName="other-scheduler")).body

    spec = made["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "nvidia.com/mig-1g.10gb": "1"}
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["priority"]) == ("Always", 30, 0)
    assert {t["key"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert made["status"]["phase"] == "Pending"


def test_priority_comes_from_the_class(http: Http, pods: str) -> None:
    critical = http("POST", pods, pod("p", schedulerName="other-scheduler", priorityClassName="system-node-critical"))
    unknown = http("POST", pods, pod("q", priorityClassName="no-such-class"))

    assert critical.status in (201, 403)  # a real cluster may keep critical pods to kube-system
    if critical.status == 201:
        assert critical.body["spec"]["priority"] == 2_000_001_000
    assert unknown.status == 403


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"containers": []}, "spec.containers: Required value", id="no container"),
        pytest.param({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value", id="no image"),
        pytest.param(
            {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1500m"}}}]},
            "must be an integer",
            id="half a GPU",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 1}}}]},
            "Limit must be set for non overcommitable resources",
            id="no limit",
        ),
    ],
)
def test_pods_that_cannot_run_are_refused(http: Http, pods: str, change: dict[str, Any], text: str) -> None:
    answer = http("POST", pods, {"metadata": {"name": "bad"}, "spec": change})

    assert answer.status == 422
    assert text in answer.message


def test_wrong_types_and_unknown_fields_of_builtin_kinds(http: Http, pods: str) -> None:
    wrong = http("POST", pods, pod("bad", hostIPC="yes"))
    unknown = http("POST", f"{pods}?fieldValidation=Strict", pod("bad", hostIpc=True))

    assert (wrong.status, unknown.status) == (400, 400)
    assert "json: cannot unmarshal string into Go struct field" in wrong.message
    assert 'unknown field "spec.hostIpc"' in unknown.message


def test_most_of_a_pod_is_fixed(http: Http, pods: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler"))

    refused = http.patch(f"{pods}/p", {"spec": {"hostNetwork": True}})
    allowed = http.patch(f"{pods}/p", {"spec": {"activeDeadlineSeconds": 60}})

    assert (refused.status, allowed.status) == (422, 200)
    assert "pod updates may not change fields other than" in refused.message


def test_a_pod_is_bound_once(http: Http, pods: str, node: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler"))
    http.patch(f"{pods}/p/status", {"status": {"nominatedNodeName": "elsewhere"}})

    first, second = bind(http, pods, "p"), bind(http, pods, "p")

    bound = http("GET", f"{pods}/p").body
    assert (first, second) == (201, 409)
    assert bound["spec"]["nodeName"] == NODE
    conditions = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


def test_pod_status_leaves_the_spec_alone(http: Http, pods: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler"))

    answer = http.patch(f"{pods}/p/status", {"status": {"phase": "Running"}, "spec": {"priority": 7}})

    assert (answer.body["status"]["phase"], answer.body["spec"]["priority"]) == ("Running", 0)


def test_a_bound_pod_gets_its_grace(http: Http, pods: str, node: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler", terminationGracePeriodSeconds=20))
    bind(http, pods, "p")

    asked = http("DELETE", f"{pods}/p").body
    kept = http("GET", f"{pods}/p").body["metadata"]
    http("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})

    assert asked["kind"] == "Pod"
    assert kept["deletionGracePeriodSeconds"] == 20
    assert kept["deletionTimestamp"] > kept["creationTimestamp"]
    assert http("GET", f"{pods}/p").status == 404


def test_a_finished_or_unbound_pod_goes_at_once(http: Http, pods: str, node: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler"))
    http("POST", pods, pod("q", schedulerName="other-scheduler"))
    bind(http, pods, "q")
    http.patch(f"{pods}/q/status", {"status": {"phase": "Succeeded"}})

    http("DELETE", f"{pods}/p")
    http("DELETE", f"{pods}/q")

    assert (http("GET", f"{pods}/p").status, http("GET", f"{pods}/q").status) == (404, 404)


def test_kubectl_drains(kubectl: Kubectl, http: Http, pods: str, node: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler", terminationGracePeriodSeconds=0))
    bind(http, pods, "p")

    assert "drained" in kubectl("drain", NODE, "--force", "--timeout=15s")

    assert http("GET", f"{pods}/p").status == 404


def test_pods_in_tables(kubectl: Kubectl, http: Http, pods: str, node: str, namespace: str) -> None:
    http("POST", pods, pod("p", schedulerName="other-scheduler"))
    bind(http, pods, "p")
    running = {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}, "image": "i", "imageID": ""}
    http.patch(f"{pods}/p/status", {"status": {"phase": "Running", "containerStatuses": [running]}})

    narrow = kubectl("get", "pods", "-n", namespace).splitlines()
    wide = kubectl("get", "pods", "-n", namespace, "-o", "wide").splitlines()
    everything = kubectl("get", "all", "-n", namespace)

    assert narrow[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert narrow[1].split()[:4] == ["p", "1/1", "Running", "0"]
    assert wide[0].split() == [*narrow[0].split(), "IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    assert NODE in wide[1]
    assert "pod/p" in everything


def test_nodes_in_tables(kubectl: Kubectl, http: Http, node: str) -> None:
    http.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})

    lines = kubectl("get", "node", NODE).splitlines()

    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert lines[1].split()[:3] == [NODE, "Ready", "<none>"]
    assert "INTERNAL-IP" in kubectl("get", "node", NODE, "-o", "wide")
    assert "Allocated resources" in kubectl("describe", "node", NODE)


def test_leases(kubectl: Kubectl, api_client: Any, namespace: str) -> None:
    leases: Any = client.CoordinationV1Api(api_client)
    now = datetime.datetime.now(datetime.UTC)
    spec = client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15, renew_time=now)
    lease = leases.create_namespaced_lease(namespace, client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=spec))
    stale = lease.metadata.resource_version
    lease.spec.holder_identity = "b"
    leases.replace_namespaced_lease("l", namespace, lease)
    lease.metadata.resource_version = stale

    with pytest.raises(ApiException) as caught:
        leases.replace_namespaced_lease("l", namespace, lease)

    assert caught.value.status == 409
    assert leases.read_namespaced_lease("l", namespace).spec.renew_time == now
    assert kubectl("get", "leases", "-n", namespace).splitlines()[0].split() == ["NAME", "HOLDER", "AGE"]


def event(about: Any, namespace: str) -> dict[str, Any]:
    involved = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": about["metadata"]["name"],
        "namespace": namespace,
        "uid": about["metadata"]["uid"],
    }
    stamp = "2026-01-01T00:00:00Z"
    return {
        "metadata": {"name": "e1"},
        "involvedObject": involved,
        "reason": "Repartitioned",
        "message": "repartitioned",
        "type": "Normal",
        "count": 2,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "source": {"component": "tests"},
    }


def test_events_are_seen_everywhere(kubectl: Kubectl, http: Http, pods: str, namespace: str) -> None:
    made = http("POST", pods, pod("p", schedulerName="other-scheduler")).body
    http("POST", f"/api/v1/namespaces/{namespace}/events", event(made, namespace))

    header = kubectl("get", "events", "-n", namespace).splitlines()[0].split()
    assert header == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "repartitioned" in kubectl("describe", "pod", "p", "-n", namespace)
    assert "repartitioned" in kubectl("events", "--for", "pod/p", "-n", namespace)
    http("DELETE", f"/api/v1/namespaces/{namespace}/events/e1")


def test_kubectl_applies_client_side(kubectl: Kubectl, namespace: str) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: '1'}\n"
    apply = ("apply", "-n", namespace, "-f", "-")

    assert "created (server dry run)" in kubectl(*apply, "--dry-run=server", stdin=manifest)
    assert "created" in kubectl(*apply, stdin=manifest)
    assert "unchanged" in kubectl(*apply, stdin=manifest)
    assert "configured" in kubectl(*apply, stdin=manifest.replace("1'", "2'"))
    assert '+  a: "3"' in kubectl("diff", "-n", namespace, "-f", "-", stdin=manifest.replace("1'", "3'"), fails=True)
    assert "deleted" in kubectl("delete", "configmap", "applied", "-n", namespace)

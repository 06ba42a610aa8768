"""Conformance: merge, JSON and strategic merge patches."""

from typing import Any

import pytest

from tests.sandbox.apiserver.probe import Http, Kubectl, Plans

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
NODE = "/api/v1/nodes/conformance-node"


@pytest.fixture
def node(http: Http) -> Any:
    http("DELETE", NODE)
    body = {
        "metadata": {"name": "conformance-node"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"nvidia.com/gpu": "8", "cpu": 4}},
    }
    answer = http("POST", "/api/v1/nodes", body)
    assert answer.status == 201, answer.body
    yield answer.body
    http("DELETE", NODE)


def test_a_merge_patch_merges_maps_and_drops_nulls(plans: Plans) -> None:
    plans.create("n1", mode="Auto", limits={"a": 1, "b": 2})

    answer = plans.http.patch(plans.path("n1"), {"spec": {"mode": None, "limits": {"b": 3}}})

    assert "mode" not in answer.body["spec"]
    assert answer.body["spec"]["limits"] == {"a": 1, "b": 3}


def test_a_json_patch_tests_first(plans: Plans) -> None:
    plans.create("n1", mode="Auto")

    def patch(found: str, wanted: str) -> int:
        operations = [
            {"op": "test", "path": "/spec/mode", "value": found},
            {"op": "replace", "path": "/spec/mode", "value": wanted},
        ]
        return plans.http.patch(plans.path("n1"), operations, JSON_PATCH).status

    assert (patch("Manual", "Auto"), patch("Auto", "Manual")) == (422, 200)
    assert plans.get("n1")["spec"]["mode"] == "Manual"


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        pytest.param(STRATEGIC, {"spec": {}}, 415, id="strategic merge is not for custom resources"),
        pytest.param("application/json", {"spec": {}}, 415, id="no patch type"),
        pytest.param(JSON_PATCH, {"op": "test"}, 400, id="a JSON patch is a list"),
        pytest.param("application/merge-patch+json", [], 400, id="a merge patch is an object"),
        pytest.param(JSON_PATCH, [{"op": "remove", "path": "/spec/nope"}], 422, id="no such path"),
    ],
)
def test_patches_that_do_not_fit(plans: Plans, content_type: str, body: Any, status: int) -> None:
    plans.create("n1")

    assert plans.http.patch(plans.path("n1"), body, content_type).status == status


def test_a_patch_of_nothing_is_404(plans: Plans) -> None:
    assert plans.http.patch(plans.path("n1"), {"spec": {}}).status == 404


def test_a_version_in_a_patch_is_a_condition(plans: Plans) -> None:
    plans.create("n1")

    answer = plans.http.patch(plans.path("n1"), {"metadata": {"resourceVersion": "1"}, "spec": {"mode": "Auto"}})

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")


def test_taints_are_replaced_as_a_list(http: Http, node: Any) -> None:
    patch = {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}

    answer = http.patch(NODE, patch, STRATEGIC)

    assert [taint["key"] for taint in answer.body["spec"]["taints"]] == ["b"]


def test_node_conditions_merge_by_type(http: Http, node: Any) -> None:
    def patch(*conditions: dict[str, str]) -> list[str]:
        answer = http.patch(f"{NODE}/status", {"status": {"conditions": list(conditions)}}, STRATEGIC)
        return sorted(c["type"] for c in answer.body["status"]["conditions"] if c["type"] in ("Ready", "Cut"))

    assert patch({"type": "Ready", "status": "True"}) == ["Ready"]
    assert patch({"type": "Cut", "status": "False"}) == ["Cut", "Ready"]
    assert patch({"$patch": "delete", "type": "Cut"}) == ["Ready"]


def test_containers_merge_by_name(http: Http, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    containers = [{"name": "a", "image": "one:1"}, {"name": "b", "image": "two:1"}]
    http(
        "POST",
        pods,
        {"metadata": {"name": "p"}, "spec": {"containers": containers, "schedulerName": "other"}},
    )

    answer = http.patch(f"{pods}/p", {"spec": {"containers": [{"name": "b", "image": "new:1"}]}}, STRATEGIC)

    assert [c["image"] for c in answer.body["spec"]["containers"]] == ["one:1", "new:1"]
    http("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})


def test_the_typed_client_patches_nodes(core: Any, node: Any) -> None:
    patched = core.patch_node("conformance-node", {"metadata": {"labels": {"nvidia.com/mig.config": "all-1g"}}})

    assert patched.metadata.labels["nvidia.com/mig.config"] == "all-1g"


def test_node_status_ignores_the_spec(http: Http, node: Any) -> None:
    patch = {"spec": {"unschedulable": True}, "status": {"allocatable": {"nvidia.com/gpu": 4}}}

    answer = http.patch(f"{NODE}/status", patch, STRATEGIC)

    assert "unschedulable" not in answer.body["spec"]
    assert answer.body["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert answer.body["status"]["capacity"] == {"nvidia.com/gpu": "8", "cpu": "4"}


def test_kubectl_patches_labels_annotates(kubectl: Kubectl, plans: Plans) -> None:
    plans.create("n1")
    name = "cardplans.conformance.example.com/n1"

    kubectl("patch", name, "--type=merge", "-p", '{"spec":{"mode":"Manual"}}')
    kubectl("label", name, "x=y")
    kubectl("annotate", name, "a=b")
    kubectl("patch", name, "--subresource=status", "--type=merge", "-p", '{"status":{"cards":2}}')

    plan = plans.get("n1")
    assert (plan["spec"]["mode"], plan["status"]["cards"]) == ("Manual", 2)
    assert plan["metadata"]["labels"] == {"x": "y"}
    assert plan["metadata"]["annotations"] == {"a": "b"}


def test_kubectl_taints_and_cordons(kubectl: Kubectl, core: Any, node: Any) -> None:
    kubectl("taint", "node", "conformance-node", "gpu=repartition:NoSchedule")
    kubectl("cordon", "conformance-node")
    cordoned = kubectl("get", "nodes")
    found = core.read_node("conformance-node").spec

    kubectl("uncordon", "conformance-node")

    assert "SchedulingDisabled" in cordoned
    assert found.unschedulable is True
    assert {"gpu", "a"} <= {taint.key for taint in found.taints}
    assert not core.read_node("conformance-node").spec.unschedulable

"""Conformance: objects are created, read, replaced and deleted; the errors on the way."""

import re
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.sandbox.apiserver.probe import CARDPLANS, Http, Kubectl, Plans

CONFIGMAPS = "/api/v1/namespaces/{}/configmaps"
POD = {"spec": {"containers": [{"name": "c", "image": "busybox:1"}]}}


def test_a_new_object_gets_identity(plans: Plans) -> None:
    metadata = plans.create("n1")["metadata"]

    assert metadata["uid"]
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])


def test_creating_twice_is_a_conflict(plans: Plans) -> None:
    plans.create("n1")

    answer = plans.http("POST", CARDPLANS, plans.body("n1"))

    assert (answer.status, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.message == 'cardplans.conformance.example.com "n1" already exists'


def test_what_is_not_there_is_a_status(core: Any, namespace: str) -> None:
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_pod("nope", namespace)

    assert caught.value.status == 404
    assert '"reason":"NotFound"' in str(caught.value.body)
    assert 'pods \\"nope\\" not found' in str(caught.value.body)


def test_names_are_judged(http: Http, namespace: str) -> None:
    answer = http("POST", CONFIGMAPS.format(namespace), {"metadata": {"name": "Not_A_Name"}})

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert "a lowercase RFC 1123 subdomain must consist of" in answer.message
    assert http("POST", CONFIGMAPS.format(namespace), {"metadata": {}}).status == 422


def test_labels_are_judged(http: Http, namespace: str) -> None:
    body = {"metadata": {"name": "labels", "labels": {"a": "not valid"}}}

    answer = http("POST", CONFIGMAPS.format(namespace), body)

    assert answer.status == 422
    assert "a valid label must be an empty string or consist of" in answer.message


def test_generate_name(core: Any, namespace: str) -> None:
    created = core.create_namespaced_config_map(namespace, {"metadata": {"generateName": "made-"}})

    assert re.fullmatch(r"made-[a-z0-9]{5}", created.metadata.name)


def test_a_missing_namespace_is_404(core: Any) -> None:
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod("no-such-namespace", {"metadata": {"name": "x"}, **POD})

    assert caught.value.status == 404
    assert 'namespaces \\"no-such-namespace\\" not found' in str(caught.value.body)


def test_namespaces_come_and_go(kubectl: Kubectl, http: Http) -> None:
    http("POST", "/api/v1/namespaces", {"metadata": {"name": "conformance-short"}})
    http("POST", CONFIGMAPS.format("conformance-short"), {"metadata": {"name": "c"}})

    kubectl("delete", "namespace", "conformance-short")

    assert http("GET", "/api/v1/namespaces/conformance-short").status == 404
    assert http("GET", CONFIGMAPS.format("conformance-short") + "/c").status == 404


def test_replace_counts_the_generation(plans: Plans) -> None:
    plan = plans.create("n1")
    plan["spec"]["mode"] = "Manual"

    answer = plans.http("PUT", plans.path("n1"), plan)

    assert (answer.status, answer.body["metadata"]["generation"]) == (200, 2)


def test_replacing_an_old_version_is_a_conflict(plans: Plans) -> None:
    plan = plans.create("n1")
    plans.http.patch(plans.path("n1"), {"spec": {"mode": "Auto"}})

    answer = plans.http("PUT", plans.path("n1"), plan)

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in answer.message
    assert answer.body["details"]["name"] == "n1"


@pytest.mark.parametrize("version", ["0", ""])
def test_replacing_without_a_version_is_refused_for_custom_resources(plans: Plans, version: str) -> None:
    plan = plans.create("n1")
    plan["metadata"]["resourceVersion"] = version

    answer = plans.http("PUT", plans.path("n1"), plan)

    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value" in answer.message
    assert "must be specified for an update" in answer.message


def test_the_uid_is_a_precondition(plans: Plans) -> None:
    plan = plans.create("n1")
    plan["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"

    assert plans.http("PUT", plans.path("n1"), plan).status == 409


def test_writes_that_change_nothing_keep_the_version(plans: Plans) -> None:
    before = plans.create("n1", mode="Auto")

    replaced = plans.http("PUT", plans.path("n1"), before)
    patched = plans.http.patch(plans.path("n1"), {"spec": {"mode": "Auto"}})

    assert replaced.version == patched.version == before["metadata"]["resourceVersion"]


def test_dry_runs_store_nothing(plans: Plans) -> None:
    answer = plans.http("POST", f"{CARDPLANS}?dryRun=All", plans.body("n1"))

    assert answer.status == 201
    assert answer.body["metadata"]["uid"]
    assert plans.http("GET", plans.path("n1")).status == 404
    assert plans.http("POST", f"{CARDPLANS}?dryRun=Some", plans.body("n1")).status == 422


def test_finalizers_hold_an_object(plans: Plans) -> None:
    plan = plans.create("n1")
    plans.http.patch(plans.path("n1"), {"metadata": {"finalizers": ["example.com/wait"]}})

    plans.http("DELETE", plans.path("n1"))
    held = plans.get("n1")["metadata"]
    plans.http.patch(plans.path("n1"), {"metadata": {"finalizers": None}})

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", held["deletionTimestamp"])
    assert held["generation"] == plan["metadata"]["generation"] + 1
    assert plans.http("GET", plans.path("n1")).status == 404


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
def test_delete_preconditions(plans: Plans, precondition: str) -> None:
    plan = plans.create("n1")
    wrong = plans.http("DELETE", plans.path("n1"), {"preconditions": {precondition: "1"}})
    right = plans.http("DELETE", plans.path("n1"), {"preconditions": {precondition: plan["metadata"][precondition]}})

    assert (wrong.status, right.status) == (409, 200)
    assert right.body["details"] == {
        "name": "n1",
        "group": "conformance.example.com",
        "kind": "cardplans",
        "uid": plan["metadata"]["uid"],
    }


def test_protobuf_of_an_unknown_kind_is_refused(http: Http, namespace: str) -> None:
    body = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Strange\x12\x00"

    answer = http("POST", CONFIGMAPS.format(namespace), body, content_type="application/vnd.kubernetes.protobuf")

    assert answer.status in (400, 415)


def test_broken_bodies_are_400(http: Http, namespace: str) -> None:
    assert http("POST", CONFIGMAPS.format(namespace), "{").status == 400
    wrong_kind = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    assert http("POST", CONFIGMAPS.format(namespace), wrong_kind).status == 400

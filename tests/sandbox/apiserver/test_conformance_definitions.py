"""Conformance: what a CustomResourceDefinition promises: pruning, defaults, validation, CEL rules, columns.

The messages are those that people saw from kubectl against kube-apiserver 1.36.
"""

import json
from typing import Any

import pytest
import yaml

from tests.sandbox.apiserver.probe import CARDPLANS, DEFINITION_FILE, Http, Kubectl, Plans
from tests.waiting import eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOT_CHECKED = "some validation rules were not checked because the object was invalid"


def test_a_definition_is_established(http: Http, definition: dict[str, Any]) -> None:
    status = http("GET", f"{CRDS}/{definition['metadata']['name']}").body["status"]

    assert {c["type"]: c["status"] for c in status["conditions"]} == {"NamesAccepted": "True", "Established": "True"}
    assert status["acceptedNames"]["listKind"] == "CardPlanList"
    assert status["storedVersions"] == ["v1alpha1"]


def test_a_definition_is_applied_again_without_change(kubectl: Kubectl, definition: dict[str, Any]) -> None:
    first = kubectl("apply", "-f", str(DEFINITION_FILE))

    assert "configured" in first
    assert "unchanged" in kubectl("apply", "-f", str(DEFINITION_FILE))


def test_defaults_are_filled_in(plans: Plans) -> None:
    assert plans.create("n1")["spec"]["tier"] == "standard"


def test_unknown_fields_are_pruned_with_a_warning(plans: Plans) -> None:
    answer = plans.http("POST", CARDPLANS, plans.body("n1", pausd=True))

    assert answer.status == 201
    assert "pausd" not in answer.body["spec"]
    assert 'unknown field \\"spec.pausd\\"' in answer.headers["Warning"]


def test_unknown_fields_are_refused_when_strict(plans: Plans) -> None:
    answer = plans.http("POST", f"{CARDPLANS}?fieldValidation=Strict", plans.body("n1", pausd=True))

    assert answer.status == 400
    assert 'strict decoding error: unknown field "spec.pausd"' in answer.message
    assert plans.http("POST", f"{CARDPLANS}?fieldValidation=Ignore", plans.body("n1", pausd=True)).status == 201


def test_null_counts_as_absent(plans: Plans) -> None:
    assert "mode" not in plans.create("n1", mode=None)["spec"]

    answer = plans.http("POST", CARDPLANS, plans.body("n2", cards=[{"index": 0, "whole": None}]))

    assert answer.status == 422
    assert "a listed card has exactly one of cut or whole" in answer.message


def test_an_empty_object_takes_nothing_else(plans: Plans) -> None:
    stored = plans.create("n1", cards=[{"index": 0, "whole": {"x": 1}}])

    assert stored["spec"]["cards"] == [{"index": 0, "whole": {}}]


CUT_AND_WHOLE = {"index": 0, "cut": {"slices": []}, "whole": {}}
START_AND_COUNT = {"index": 0, "cut": {"slices": [{"profile": "p", "start": 0, "count": 1}]}}


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        pytest.param({"mode": "Both"}, "spec.mode", '"Both": supported values: "Auto", "Manual"', id="enum"),
        pytest.param({"paused": "yes"}, "spec.paused", 'in body must be of type boolean: "string"', id="type"),
        pytest.param({"nodeName": ""}, "spec.nodeName", "in body should be at least 1 chars long", id="short"),
        pytest.param({"nodeName": None}, "spec.nodeName", "Required value", id="required"),
        pytest.param(
            {"cards": [{"index": 16, "whole": {}}]},
            "spec.cards[0].index",
            "Invalid value: 16: spec.cards[0].index in body should be less than or equal to 15",
            id="maximum",
        ),
        pytest.param(
            {"cards": [{"index": n, "whole": {}} for n in range(5)]},
            "spec.cards",
            "Too many: 5: must have at most 4 items",
            id="items",
        ),
        pytest.param(
            {"cards": [{"index": 0, "whole": {}, "uuid": "x"}]},
            "spec.cards[0].uuid",
            "spec.cards[0].uuid in body should match '^GPU-[0-9a-f-]+$'",
            id="pattern",
        ),
        pytest.param(
            {"cards": [{"index": 0, "whole": {}}, {"index": 0, "whole": {}}]},
            "spec.cards[1]",
            'Duplicate value: {"index":0}',
            id="list map",
        ),
        pytest.param({"tags": ["a", "a"]}, "spec.tags[1]", 'Duplicate value: "a"', id="set"),
        pytest.param(
            {"cards": [CUT_AND_WHOLE]}, "spec.cards[0]", "Invalid value: a listed card has exactly one of", id="one of"
        ),
        pytest.param(
            {"cards": [START_AND_COUNT]},
            "spec.cards[0].cut.slices[0]",
            "give start (one exact placement) or count, not both",
            id="not both",
        ),
    ],
)
def test_what_is_wrong_is_named(plans: Plans, spec: dict[str, Any], field: str, text: str) -> None:
    answer = plans.http("POST", CARDPLANS, plans.body("n1", **spec))

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.message.startswith('CardPlan.conformance.example.com "n1" is invalid: ')
    causes = answer.body["details"]["causes"]
    assert any(cause["field"] == field and text in cause["message"] for cause in causes), causes


def test_rules_wait_until_the_shape_is_right(plans: Plans) -> None:
    answer = plans.http("POST", CARDPLANS, plans.body("n1", mode="Both", cards=[CUT_AND_WHOLE]))

    causes = answer.body["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["spec.mode", "<nil>"]
    assert NOT_CHECKED in causes[1]["message"]


def test_a_rule_points_at_its_field(plans: Plans) -> None:
    answer = plans.http("POST", CARDPLANS, {**plans.body("n1"), "spec": {"nodeName": "n2"}})

    assert [cause["field"] for cause in answer.body["details"]["causes"]] == ["spec.nodeName"]
    assert "a plan is named after its node" in answer.message


def test_a_transition_rule_compares_with_the_stored_object(plans: Plans) -> None:
    plans.create("n1")

    answer = plans.http.patch(plans.path("n1"), {"spec": {"nodeName": "n2"}})

    assert answer.status == 422
    assert "nodeName cannot change; create a plan for the other node" in answer.message


def test_int_or_string_takes_both(plans: Plans) -> None:
    assert plans.create("n1", share=3)["spec"]["share"] == 3
    assert plans.create("n2", share="50%")["spec"]["share"] == "50%"
    assert plans.http("POST", CARDPLANS, plans.body("n3", share=True)).status == 422


def test_kubectl_shows_the_complaint(kubectl: Kubectl, plans: Plans) -> None:
    manifest = json.dumps(plans.body("n1", cards=[CUT_AND_WHOLE]))

    shown = kubectl("apply", "-f", "-", stdin=manifest, fails=True)

    assert shown.strip() == (
        'The CardPlan "n1" is invalid: spec.cards[0]: Invalid value: a listed card has exactly one of cut or whole '
        "(leave the card out to leave it alone)"
    )
    unknown = kubectl("apply", "-f", "-", stdin=json.dumps(plans.body("n1", pausd=True)), fails=True)
    assert 'strict decoding error: unknown field "spec.pausd"' in unknown


def test_printer_columns(kubectl: Kubectl, plans: Plans) -> None:
    plans.create("n1", mode="Auto")
    plans.create("n2")
    condition = {"type": "Ready", "status": "True", "reason": "Confirmed", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    plans.apply_status("n1", "agent", {"cards": 8, "driver": "570.1", "conditions": [condition]})

    narrow = kubectl("get", "cpl").splitlines()
    wide = kubectl("get", "cpl", "-o", "wide").splitlines()

    assert narrow[0].split() == ["NAME", "MODE", "CARDS", "READY", "REASON", "AGE"]
    assert narrow[1].split()[:5] == ["n1", "Auto", "8", "True", "Confirmed"]
    assert narrow[2].split()[0] == "n2"
    assert len(narrow[2].split()) == 2
    assert wide[0].split()[-1] == "DRIVER"
    assert wide[1].split()[-1] == "570.1"


def with_schema(change: dict[str, Any]) -> dict[str, Any]:
    crd: dict[str, Any] = yaml.safe_load(DEFINITION_FILE.read_text())
    crd["metadata"]["name"] = "others.conformance.example.com"
    crd["spec"]["names"] = {"plural": "others", "kind": "Other"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"field": change}}}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = []
    return crd


ITEMS = {"type": "object", "properties": {"a": {"type": "string"}}}
MAP_WITHOUT_KEYS = {"x-kubernetes-list-type": "map"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"description": "no type"}, "type: Required value", id="no type"),
        pytest.param(
            {"type": "string", "x-kubernetes-validations": [{"rule": "self ==", "message": "m"}]},
            "compilation failed",
            id="no CEL",
        ),
        pytest.param({"type": "array", "items": ITEMS, **MAP_WITHOUT_KEYS}, "x-kubernetes-list-map-keys", id="keys"),
    ],
)
def test_bad_definitions_are_refused(http: Http, change: dict[str, Any], text: str) -> None:
    answer = http("POST", CRDS, with_schema(change))

    assert answer.status == 422
    assert text in answer.message


def test_a_definition_is_named_after_its_kind(http: Http) -> None:
    crd = with_schema({"type": "string"})
    crd["metadata"]["name"] = "wrong.example.com"

    assert http("POST", CRDS, crd).status == 422


def test_a_definition_takes_its_objects_along(http: Http, kubectl: Kubectl) -> None:
    crd = with_schema({"type": "string"})
    path = "/apis/conformance.example.com/v1alpha1/others"
    made = {
        "apiVersion": "conformance.example.com/v1alpha1",
        "kind": "Other",
        "metadata": {"name": "o"},
        "spec": {"field": "x"},
    }
    assert http("POST", CRDS, crd).status == 201
    # A definition is served, and its end is seen, a moment after the answer.
    eventually(lambda: http("GET", path).status == 200, "the kind is served")
    eventually(lambda: http("POST", path, made).status in (201, 409), "an object is stored")

    kubectl("delete", "crd", crd["metadata"]["name"])

    eventually(lambda: http("GET", path).status == 404, "the kind is served no more")
    assert http("POST", CRDS, crd).status == 201
    served = eventually(lambda: a if (a := http("GET", path)).status == 200 else None, "the kind is served again")
    assert served.body["items"] == []
    kubectl("delete", "crd", crd["metadata"]["name"])

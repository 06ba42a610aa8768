"""Conformance: server-side apply: ownership per item, conflicts, force, what is removed and what stays.

The expectations were seen on kube-apiserver 1.36 and 1.30.
"""

import json
from typing import Any

import pytest

from tests.sandbox.apiserver.probe import Http, Kubectl, Plans

AUTHOR, CONTROLLER = "author", "controller"


def cut(index: int, profile: str = "1g.10gb") -> dict[str, Any]:
    return {"index": index, "cut": {"slices": [{"profile": profile, "start": 0}]}}


def indexes(plan: Any) -> list[int]:
    return [card["index"] for card in plan["spec"].get("cards", [])]


def owned(plan: Any) -> dict[str, list[str]]:
    """Who owns which cards, and which other fields of the spec."""
    found: dict[str, list[str]] = {}
    for entry in plan["metadata"].get("managedFields", []):
        spec = entry["fieldsV1"].get("f:spec", {})
        names = [name[2:] for name in spec if name.startswith("f:") and name != "f:cards"]
        cards = [name for name in spec.get("f:cards", {}) if name != "."]
        found[f"{entry['manager']}/{entry['operation']}"] = sorted(names) + sorted(cards)
    return found


def test_an_apply_creates_and_owns(plans: Plans) -> None:
    answer = plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1)])

    assert answer.status == 201
    entry = answer.body["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == (CONTROLLER, "Apply", "FieldsV1")
    assert entry["fieldsV1"] == {"f:spec": {"f:nodeName": {}, "f:cards": {'k:{"index":0}': {}, 'k:{"index":1}': {}}}}


def test_a_conflict_names_each_item_and_writes_none(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1), cut(2)])

    answer = plans.apply("n1", AUTHOR, cards=[cut(0, "3g.40gb"), cut(1, "3g.40gb"), cut(3)])

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "controller"', "field": f".spec.cards[index={n}]"}
        for n in (0, 1)
    ]
    assert answer.body["details"] == {"causes": causes}
    assert answer.message.startswith("Apply failed with 2 conflicts: conflicts with")
    assert indexes(plans.get("n1")) == [0, 1, 2]


def test_one_conflict_is_reported_in_one_line(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, mode="Auto")

    answer = plans.apply("n1", AUTHOR, mode="Manual")

    assert answer.message == 'Apply failed with 1 conflict: conflict with "controller": .spec.mode'


def test_force_takes_the_item(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1)])

    body = plans.body("n1", cards=[cut(0, "3g.40gb")])
    answer = plans.http.apply(plans.path("n1"), body, AUTHOR, force="true")

    assert owned(answer.body) == {
        "author/Apply": ["nodeName", 'k:{"index":0}'],
        "controller/Apply": ["nodeName", 'k:{"index":1}'],
    }


def test_what_is_not_applied_any_more_is_removed(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, mode="Auto", cards=[cut(0), cut(1)])

    answer = plans.apply("n1", CONTROLLER, cards=[cut(0)])

    assert indexes(answer.body) == [0]
    assert "mode" not in answer.body["spec"]
    assert "cards" not in plans.apply("n1", CONTROLLER).body["spec"]


def test_what_is_owned_together_stays(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1)])
    together = plans.apply("n1", AUTHOR, cards=[cut(1)])
    clash = plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1, "3g.40gb")])

    left = plans.apply("n1", CONTROLLER, cards=[cut(0)])

    assert together.status == 200
    assert clash.status == 409
    assert indexes(left.body) == [0, 1]
    assert owned(left.body)["author/Apply"] == ["nodeName", 'k:{"index":1}']


def test_new_items_go_to_the_end(plans: Plans) -> None:
    plans.apply("n1", AUTHOR, cards=[cut(3)])

    assert indexes(plans.apply("n1", CONTROLLER, cards=[cut(1), cut(2)]).body) == [3, 1, 2]


def test_a_field_may_be_left_out_of_an_existing_object(plans: Plans) -> None:
    plans.apply("n1", AUTHOR)
    body = plans.body("n1", mode="Auto")
    del body["spec"]["nodeName"]

    assert plans.http.apply(plans.path("n1"), body, CONTROLLER).status == 200


def test_updates_own_what_they_changed(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1)])

    operation = [{"op": "replace", "path": "/spec/cards/0/cut/slices", "value": [{"profile": "2g.20gb"}]}]
    plans.http.patch(plans.path("n1"), operation, "application/json-patch+json", fieldManager="kubectl-patch")
    answer = plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1)])

    assert owned(plans.get("n1"))["kubectl-patch/Update"] == ['k:{"index":0}']
    assert answer.status == 409
    assert answer.body["details"]["causes"][0]["message"] == (
        'conflict with "kubectl-patch" using conformance.example.com/v1alpha1'
    )


def test_a_merge_patch_replaces_a_list_map_and_its_owners(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0), cut(1)])

    plans.http.patch(plans.path("n1"), {"spec": {"cards": [{"index": 3, "whole": {}}]}}, fieldManager="kubectl")
    plan = plans.get("n1")

    assert indexes(plan) == [3]
    assert owned(plan)["controller/Apply"] == ["nodeName"]


def test_an_apply_that_changes_nothing_keeps_version_and_time(plans: Plans) -> None:
    first = plans.apply("n1", CONTROLLER, cards=[cut(0)])

    again = plans.apply("n1", CONTROLLER, cards=[cut(0)])

    assert again.body == first.body


def test_a_change_of_ownership_alone_is_a_new_version_not_a_generation(plans: Plans) -> None:
    first = plans.apply("n1", CONTROLLER, cards=[cut(0)])

    second = plans.apply("n1", AUTHOR, cards=[cut(0)])

    assert second.version != first.version
    assert second.body["metadata"]["generation"] == first.body["metadata"]["generation"]


def test_a_stale_version_is_a_conflict_without_causes(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0)])

    answer = plans.apply("n1", AUTHOR, metadata={"resourceVersion": "1"}, cards=[cut(1)])

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "causes" not in answer.body["details"]
    assert answer.body["details"]["name"] == "n1"


def test_field_conflicts_come_before_a_stale_version(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, cards=[cut(0)])

    answer = plans.apply("n1", AUTHOR, metadata={"resourceVersion": "1"}, cards=[cut(0, "3g.40gb")])

    assert answer.body["details"]["causes"][0]["field"] == ".spec.cards[index=0]"


def test_the_right_version_and_uid_pass(plans: Plans) -> None:
    found = plans.apply("n1", CONTROLLER).body["metadata"]
    fence = {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}

    assert plans.apply("n1", CONTROLLER, metadata=fence, mode="Auto").status == 200


def test_another_uid_is_refused(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER)

    there = plans.apply("n1", CONTROLLER, metadata={"uid": "0000"}, mode="Auto")
    stale = plans.apply("n1", CONTROLLER, metadata={"uid": "0000", "resourceVersion": "1"}, mode="Auto")
    absent = plans.apply("n2", CONTROLLER, metadata={"uid": "0000"})

    assert there.status == 422
    assert 'metadata.uid: Invalid value: "0000": field is immutable' in there.message
    assert stale.status == 409
    assert absent.status == 409
    assert "uid mismatch: the provided object specified uid 0000, and no existing object was found" in absent.message


def test_a_version_alone_creates_what_is_gone(plans: Plans) -> None:
    assert plans.apply("n1", CONTROLLER, metadata={"resourceVersion": "5"}).status == 201


def test_duplicate_keys_in_an_apply_are_an_error_of_the_server(plans: Plans) -> None:
    answer = plans.apply("n1", CONTROLLER, cards=[cut(1), cut(1)])

    assert answer.status == 500
    assert "duplicate entries for key [index=1]" in answer.message


def test_undeclared_fields_cannot_be_applied(plans: Plans) -> None:
    answer = plans.apply("n1", CONTROLLER, pausd=True)

    assert answer.status == 500
    assert ".spec.pausd: field not declared in schema" in answer.message


@pytest.mark.parametrize("wrong", [{"mode": 5}, {"cards": {}}, {"cards": [1]}, {"cards": [{"mode": "Auto"}]}])
def test_wrong_types_and_missing_keys_cannot_be_applied(plans: Plans, wrong: dict[str, Any]) -> None:
    before = plans.create("n1")

    answer = plans.apply("n1", CONTROLLER, **wrong)

    assert (answer.status, answer.body.get("kind")) in ((422, "Status"), (500, "Status"))
    assert "Internal error" not in answer.message
    assert plans.get("n1")["spec"] == before["spec"]


def test_a_manager_is_required(plans: Plans) -> None:
    answer = plans.http("PATCH", plans.path("n1"), plans.body("n1"), content_type="application/apply-patch+yaml")

    assert answer.status == 422
    assert "fieldManager: Required value: is required for apply patch" in answer.message


def test_force_belongs_to_apply(plans: Plans) -> None:
    plans.create("n1")

    answer = plans.http.patch(plans.path("n1"), {"spec": {"mode": "Auto"}}, force="true")

    assert answer.status == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in answer.message


def test_an_atomic_map_is_owned_and_replaced_whole(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, planned={"cards": [{"index": 0}, {"index": 1}]})

    answer = plans.apply("n1", CONTROLLER, planned={"cards": [{"index": 2}]})
    clash = plans.apply("n1", AUTHOR, planned={"cards": [{"index": 3}]})

    assert answer.body["spec"]["planned"] == {"cards": [{"index": 2}]}
    assert [cause["field"] for cause in clash.body["details"]["causes"]] == [".spec.planned"]


def test_labels_are_owned_one_by_one(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, metadata={"labels": {"a": "1", "b": "1"}})
    plans.apply("n1", AUTHOR, metadata={"labels": {"c": "1"}})

    answer = plans.apply("n1", CONTROLLER, metadata={"labels": {"a": "1"}})

    assert answer.body["metadata"]["labels"] == {"a": "1", "c": "1"}


def test_sets_are_owned_by_member(plans: Plans) -> None:
    plans.apply("n1", CONTROLLER, tags=["a", "b"])
    plans.apply("n1", AUTHOR, tags=["c"])

    assert plans.apply("n1", CONTROLLER, tags=["a"]).body["spec"]["tags"] == ["a", "c"]


def test_kubectl_applies_server_side(kubectl: Kubectl, plans: Plans) -> None:
    manifest = json.dumps(plans.body("n1", cards=[cut(0)]))
    plans.apply("n1", CONTROLLER, cards=[cut(0, "7g.80gb")])

    refused = kubectl("apply", "--server-side", "-f", "-", stdin=manifest, fails=True)
    forced = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    assert 'conflict with "controller": .spec.cards[index=0]' in refused
    assert "serverside-applied" in forced
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=manifest)


def test_builtin_kinds_are_applied_too(http: Http, kubectl: Kubectl, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "applied", "namespace": namespace},
        "spec": {"containers": [{"name": "a", "image": "busybox:1"}]},
    }

    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(pod))

    stored = http("GET", f"/api/v1/namespaces/{namespace}/pods/applied").body
    containers = stored["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]
    assert containers == {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}}}

"""Conformance: the status subresource, who may write it, and what moves the generation."""

from typing import Any

from tests.sandbox.apiserver.probe import Kubectl, Plans

AGENT, CONTROLLER = "agent", "controller"


def condition(type_: str, status: str = "True", **more: Any) -> dict[str, Any]:
    stamp = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": "Ok", "message": "", "lastTransitionTime": stamp, **more}


def test_the_object_ignores_status_and_status_ignores_the_object(plans: Plans) -> None:
    plan = plans.create("n1")
    plan["status"] = {"cards": 3}

    replaced = plans.http("PUT", plans.path("n1"), plan).body
    replaced_first = dict(replaced)
    replaced["status"] = {"cards": 4}
    replaced["spec"]["mode"] = "Manual"
    replaced["metadata"]["labels"] = {"a": "b"}
    written = plans.http("PUT", plans.path("n1", "status"), replaced).body

    assert "status" not in replaced_first
    assert written["status"] == {"cards": 4}
    assert "mode" not in written["spec"]
    assert "labels" not in written["metadata"]
    assert written["metadata"]["generation"] == 1


def test_status_is_patched_alone(plans: Plans) -> None:
    plans.create("n1")
    plans.http.patch(plans.path("n1", "status"), {"status": {"cards": 4, "driver": "570"}})

    answer = plans.http.patch(plans.path("n1", "status"), {"status": {"cards": 5}, "spec": {"mode": "Manual"}})

    assert answer.body["status"] == {"cards": 5, "driver": "570"}
    assert "mode" not in answer.body["spec"]


def test_two_managers_share_the_conditions(plans: Plans) -> None:
    plans.create("n1")
    plans.apply_status("n1", AGENT, {"conditions": [condition("Ready"), condition("Applied")]})

    answer = plans.apply_status("n1", CONTROLLER, {"conditions": [condition("AgentAlive")]})
    left = plans.apply_status("n1", AGENT, {"conditions": [condition("Ready")]})

    assert [found["type"] for found in answer.body["status"]["conditions"]] == ["Ready", "Applied", "AgentAlive"]
    assert [found["type"] for found in left.body["status"]["conditions"]] == ["Ready", "AgentAlive"]


def test_conditions_are_owned_by_field(plans: Plans) -> None:
    plans.create("n1")
    plans.apply_status("n1", AGENT, {"conditions": [condition("Ready")]})

    ready = {"conditions": [condition("Ready", "Unknown", reason="Silent")]}
    refused = plans.apply_status("n1", CONTROLLER, ready)
    forced = plans.apply_status("n1", CONTROLLER, ready, force="true")
    afterwards = plans.apply_status("n1", AGENT, {"conditions": [condition("Ready")]})

    prefix = '.status.conditions[type="Ready"]'
    assert {cause["field"] for cause in refused.body["details"]["causes"]} == {f"{prefix}.reason", f"{prefix}.status"}
    assert refused.body["details"]["causes"][0]["message"] == 'conflict with "agent" with subresource "status"'
    assert forced.status == 200
    assert afterwards.status == 409


def test_a_status_apply_owns_status_only(plans: Plans) -> None:
    plans.create("n1")
    body = {**plans.body("n1", mode="Manual"), "status": {"cards": 1}}
    body["metadata"]["labels"] = {"a": "b"}

    answer = plans.http.apply(plans.path("n1", "status"), body, AGENT)

    entry = next(found for found in answer.body["metadata"]["managedFields"] if found["manager"] == AGENT)
    assert entry["fieldsV1"] == {"f:status": {"f:cards": {}}}
    assert entry["subresource"] == "status"
    assert "mode" not in answer.body["spec"]


def test_an_apply_of_the_object_ignores_status(plans: Plans) -> None:
    plans.create("n1")
    plans.http.patch(plans.path("n1", "status"), {"status": {"cards": 4}})

    answer = plans.http.apply(plans.path("n1"), {**plans.body("n1"), "status": {"cards": 99}}, CONTROLLER)

    assert answer.body["status"] == {"cards": 4}


def test_status_never_creates(plans: Plans) -> None:
    assert plans.apply_status("n1", AGENT, {"cards": 1}).status == 404


def test_a_status_apply_that_changes_nothing_keeps_the_version(plans: Plans) -> None:
    plans.create("n1")
    first = plans.apply_status("n1", AGENT, {"conditions": [condition("Ready")]}, force="true")

    again = plans.apply_status("n1", AGENT, {"conditions": [condition("Ready")]}, force="true")

    assert again.body == first.body


def test_a_stale_status_is_a_conflict_without_causes(plans: Plans) -> None:
    plans.create("n1")
    body = {**plans.body("n1"), "status": {"cards": 1}}
    body["metadata"]["resourceVersion"] = "1"

    answer = plans.http.apply(plans.path("n1", "status"), body, AGENT)

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "causes" not in answer.body["details"]


def test_times_are_kept_as_written_and_judged(plans: Plans) -> None:
    plans.create("n1")
    written = ("2026-11-21T10:00:00.123456Z", "2026-11-21T10:00:00+02:00")

    kept = [
        plans.apply_status("n1", AGENT, {"conditions": [condition("Ready", lastTransitionTime=stamp)]}).body["status"]
        for stamp in written
    ]
    refused = plans.apply_status(
        "n1", AGENT, {"conditions": [condition("Ready", lastTransitionTime="2026-11-21 10:00:00")]}
    )

    assert tuple(status["conditions"][0]["lastTransitionTime"] for status in kept) == written
    assert refused.status == 422
    assert "must be of type date-time" in refused.message


def test_a_required_field_of_a_condition_is_missed(plans: Plans) -> None:
    plans.create("n1")
    incomplete = condition("Ready")
    del incomplete["message"]

    answer = plans.apply_status("n1", AGENT, {"conditions": [incomplete]})

    assert answer.status == 422
    assert "status.conditions[0].message: Required value" in answer.message


def test_what_moves_the_generation(plans: Plans) -> None:
    plans.create("n1")

    def generation_after(body: Any, subresource: str = "") -> int:
        generation: int = plans.http.patch(plans.path("n1", subresource), body).body["metadata"]["generation"]
        return generation

    assert generation_after({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}) == 1
    assert generation_after({"metadata": {"finalizers": ["example.com/f"]}}) == 1
    assert generation_after({"status": {"cards": 1}}, "status") == 1
    assert generation_after({"spec": {"mode": "Auto"}}) == 2
    assert generation_after({"spec": {"mode": "Auto"}}) == 2
    plans.http("DELETE", plans.path("n1"))
    assert plans.get("n1")["metadata"]["generation"] == 3
    plans.http.patch(plans.path("n1"), {"metadata": {"finalizers": None}})


def test_the_generation_is_a_fence_for_json_patches(plans: Plans) -> None:
    plans.create("n1")

    def patch(generation: int) -> int:
        operations = [
            {"op": "test", "path": "/metadata/generation", "value": generation},
            {"op": "add", "path": "/spec/mode", "value": "Manual"},
        ]
        return plans.http.patch(plans.path("n1"), operations, "application/json-patch+json").status

    assert (patch(7), patch(1)) == (422, 200)


def test_kubectl_wait_believes_the_condition(kubectl: Kubectl, plans: Plans) -> None:
    plans.create("n1")
    plans.http.patch(plans.path("n1"), {"spec": {"mode": "Auto"}})
    wait = ("wait", "cardplans.conformance.example.com/n1", "--for=condition=Ready")

    plans.apply_status("n1", AGENT, {"conditions": [condition("Ready", observedGeneration=1)]}, force="true")
    assert "timed out waiting for the condition" in kubectl(*wait, "--timeout=1s", fails=True)

    ready = {"conditions": [condition("Ready", observedGeneration=2)], "observedGeneration": 2}
    plans.apply_status("n1", AGENT, ready, force="true")
    assert "condition met" in kubectl(*wait, "--timeout=10s")
    assert "condition met" in kubectl("wait", "cpl/n1", "--for=jsonpath={.status.observedGeneration}=2")

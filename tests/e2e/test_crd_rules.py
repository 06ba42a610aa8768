"""Every CEL rule of the CRD has an object that keeps it and one that breaks it, found from the CRD itself.

A rule that is added without a pair in test_crd fails here. What is planned is written as the controller, so that the
schema alone decides there, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.e2e import fleet
from tests.e2e.real_cluster import APPLY, CRD, MERGE, PLANS, Answer, RealCluster, call, plan
from tests.e2e.test_crd import ACCEPTED, REFUSED

NAME = "planned-n1"
# Rules about a change: the stored object, what keeps the rule, what breaks it.
CHANGES = {"nodeName cannot change; create a plan for the other node": ({"paused": True}, {"nodeName": "other"})}


def rules(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, message and expression of each."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield (path + rule.get("fieldPath", "")).lstrip("."), rule["message"], rule["rule"]
    for key, inner in (schema.get("properties") or {}).items():
        yield from rules(inner, f"{path}.{key}")
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")


DEFINITION = yaml.safe_load(CRD.read_text())
RULES = [rule for version in DEFINITION["spec"]["versions"] for rule in rules(version["schema"]["openAPIV3Schema"])]
STATIC = [(path, message) for path, message, rule in RULES if "oldSelf" not in rule]
# The API server drops explicit nulls, but not within a server-side apply.
ITEMS = {
    name: body["spec"]["gpus"]
    for name, body in ACCEPTED.items()
    if body["spec"].get("gpus") and name != "null union members"
}


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Everything that an object has, in the notation of `rules`."""
    if value is None:
        return
    yield path.lstrip(".")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{path}.{key}")
    if isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{path}[]")


@pytest.fixture(scope="module")
def controller(cluster: RealCluster) -> Iterator[ApiClient]:
    """With an Auto plan to write to."""
    apply.create(cluster.admin, PLANS, plan(NAME))
    yield fleet.controller(cluster)
    apply.delete(cluster.admin, f"{PLANS}/{NAME}")


def write(cluster: RealCluster, controller: ApiClient, body: Mapping[str, Any]) -> Answer:
    """Each field by its owner, and nothing is stored."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    if "planned" not in body["spec"]:
        return call(cluster.admin, "POST", PLANS, body, **query)
    query |= {"fieldManager": names.CONTROLLER_MANAGER, "force": "true"}
    return call(controller, "PATCH", f"{PLANS}/{NAME}", body, APPLY, **query)


@pytest.mark.parametrize("name", ITEMS)
def test_what_a_person_may_pin_the_controller_may_plan(cluster: RealCluster, controller: ApiClient, name: str) -> None:
    answer = write(cluster, controller, plan(NAME, planned={"gpus": ITEMS[name]}))
    assert answer.allowed, answer.message


@pytest.mark.parametrize(("path", "message"), STATIC, ids=lambda text: text[:60])
def test_every_rule_has_an_object_that_breaks_it(
    cluster: RealCluster, controller: ApiClient, path: str, message: str
) -> None:
    found = [
        body
        for body, field, sentence in REFUSED.values()
        if sentence == message and re.sub(r"\[\d+\]", "[]", field) == path
    ]
    assert found, f"no object in test_crd breaks the rule of {path}: {message}"
    for body in found:
        planned = body["spec"].get("planned")
        answer = write(cluster, controller, plan(NAME, planned=planned) if planned else body)
        assert answer.status == 422, answer
        assert message in answer.message


@pytest.mark.parametrize(("path", "message"), STATIC, ids=lambda text: text[:60])
def test_every_rule_has_an_object_that_keeps_it(path: str, message: str) -> None:
    """They are accepted in test_crd, and above."""
    pinned = {path for body in ACCEPTED.values() for path in paths(body)}
    planned = {path for items in ITEMS.values() for path in paths({"spec": {"planned": {"gpus": items}}})}
    assert path in pinned | planned, message


@pytest.mark.parametrize("message", [message for _, message, rule in RULES if "oldSelf" in rule])
def test_every_rule_about_a_change(cluster: RealCluster, message: str) -> None:
    keeps, breaks = CHANGES[message]
    apply.create(cluster.admin, PLANS, plan("n1-changes"))
    path = f"{PLANS}/n1-changes"
    assert call(cluster.admin, "PATCH", path, {"spec": keeps}, MERGE).allowed
    answer = call(cluster.admin, "PATCH", path, {"spec": breaks}, MERGE)
    apply.delete(cluster.admin, path)
    assert answer.status == 422
    assert message in answer.message


def test_there_are_rules() -> None:
    assert len(STATIC) == 13
    assert len(RULES) == 14

"""deploy/manifests as files: whatever they name exists, and policies come before the rights that they narrow."""

import re
from typing import Any

import pytest

from crds.v1alpha1 import names
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

DOCUMENTS = list(manifests_of(MANIFESTS))
POLICIES = [body for body in DOCUMENTS if body["kind"] == "ValidatingAdmissionPolicy"]
WORKLOADS = [body for body in DOCUMENTS if body["kind"] in ("Deployment", "DaemonSet")]


def position(kind: str, name: str) -> int:
    return next(i for i, b in enumerate(DOCUMENTS) if (b["kind"], b["metadata"]["name"]) == (kind, name))


def test_each_policy_is_bound_and_denies() -> None:
    bound = {
        body["spec"]["policyName"]: body["spec"]["validationActions"]
        for body in DOCUMENTS
        if body["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert bound == {policy["metadata"]["name"]: ["Deny"] for policy in POLICIES}


def test_policies_come_before_the_rights_that_they_narrow() -> None:
    first_right = min(position("ClusterRoleBinding", name) for name in ("gpuplan-agent", "gpuplan-controller"))
    last = max(i for i, body in enumerate(DOCUMENTS) if body["kind"] == "ValidatingAdmissionPolicyBinding")
    assert last < first_right


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["metadata"]["name"])
def test_a_refusal_is_403_with_a_sentence(policy: dict[str, Any]) -> None:
    about_everyones_pods = policy["metadata"]["name"] in ("gpuplan-pods", "gpuplan-mps-requests", "gpuplan-amounts")
    assert policy["spec"]["failurePolicy"] == ("Ignore" if about_everyones_pods else "Fail")
    for rule in policy["spec"]["validations"]:
        assert rule["reason"] == "Forbidden"
        assert rule["message"]


def test_names_are_those_of_the_code() -> None:
    text = "".join(path.read_text() for path in sorted(MANIFESTS.glob("*.yaml")))
    assert names.TAINT_CHANGING in text
    assert f"'{names.agent_lease('')}' + variables.node" in text
    assert f"name: {names.NAMESPACE}" in text
    assert names.CONTROLLER_LEASE in text
    for label in (names.LABEL_PARTITIONING, *names.FOREIGN_PARTITIONING_LABELS):
        assert text.count(f"key: {label}") == 2, label


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda body: body["metadata"]["name"])
def test_workloads(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    accounts = {body["metadata"]["name"] for body in DOCUMENTS if body["kind"] == "ServiceAccount"}
    maps = {body["metadata"]["name"] for body in DOCUMENTS if body["kind"] == "ConfigMap"}

    assert pod["serviceAccountName"] in accounts
    assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} <= maps
    for container in pod["containers"]:
        assert container["resources"]["requests"]
        assert re.fullmatch(r"gpuplan:\d+\.\d+\.\d+", container["image"])
    if workload["kind"] == "DaemonSet":
        assert pod["tolerations"] == [{"operator": "Exists"}]

"""What clusters put into gpuplan's way: a right that is missing, a policy that refuses, a webhook that does not answer.

Each function takes a client of an administrator, and ends when the obstacle is in force.
"""

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.e2e.real_cluster import JSON_PATCH, LEASES, MERGE, PLANS, call
from tests.waiting import eventually

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"
WEBHOOKS = f"{ADMISSION}/validatingwebhookconfigurations"
OURS = {"made-by": "a-test"}


def take_right(api: ApiClient, role: str, resource: str, verb: str) -> None:
    """The rules of a role without those that allow this; `apply_again` gives them back."""
    path = f"/apis/rbac.authorization.k8s.io/v1/{role}"
    rules = apply.get(api, path)["rules"]
    kept = [rule for rule in rules if resource not in rule["resources"] or verb not in rule["verbs"]]
    apply.merge_patch(api, path, {"rules": kept})


def refuse(api: ApiClient, name: str, resource: str, of: str) -> None:
    """A policy of the cluster's own, which refuses the agents' writes to one object."""
    kind = resource.split("/", maxsplit=1)[0]
    group = "coordination.k8s.io" if kind == "leases" else names.GROUP
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]}
    # The administrator as well, by whom it is seen when the policy is in force.
    refused = [_account("gpuplan-agent"), "gpuplan-sandbox-admin"]
    validation = {"expression": f"!(request.userInfo.username in {refused})", "message": f"no {resource} today"}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [of]}]},
        "validations": [validation],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    for path, body in ((POLICIES, spec), (BINDINGS, binding)):
        apply.create(api, path, {"metadata": {"name": name, "labels": OURS}, "spec": body})
    objects = LEASES if kind == "leases" else PLANS
    path = "/".join([objects, of, *resource.split("/")[1:]])
    eventually(
        lambda: "today" in call(api, "PATCH", path, {}, MERGE, dryRun="All").message,
        f"policy {name} to be in force",
    )


def exempt(api: ApiClient, name: str) -> None:
    """The agents' account from that policy."""
    mine = {"name": "not-gpuplan", "expression": f"request.userInfo.username != '{_account('gpuplan-agent')}'"}
    apply.merge_patch(api, f"{POLICIES}/{name}", {"spec": {"matchConditions": [mine]}})


def break_webhook(api: ApiClient, plan: str) -> None:
    """A webhook of the cluster's own for a plan that a program writes, whose server does not answer."""
    programs = "request.userInfo.username.startsWith('system:serviceaccount:')"
    condition = {"name": "programs", "expression": f"{programs} && request.name == '{plan}'"}
    webhook = {
        "name": "plans.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/plans"},
        "rules": [
            {
                "apiGroups": [names.GROUP],
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": [names.PLURAL],
            }
        ],
        "matchConditions": [condition],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    apply.create(api, WEBHOOKS, {"metadata": {"name": "plans", "labels": OURS}, "webhooks": [webhook]})


def exempt_from_webhook(api: ApiClient) -> None:
    """The controller's account."""
    mine = {"name": "not-gpuplan", "expression": f"request.userInfo.username != '{_account('gpuplan-controller')}'"}
    patch = [{"op": "add", "path": "/webhooks/0/matchConditions/-", "value": mine}]
    found = call(api, "PATCH", f"{WEBHOOKS}/plans", patch, JSON_PATCH)
    assert found.allowed, found.message


def remove(api: ApiClient) -> None:
    """All of them but rights."""
    for path in (POLICIES, BINDINGS, WEBHOOKS):
        for found in apply.get(api, path, query={"labelSelector": "made-by=a-test"})["items"]:
            apply.delete(api, f"{path}/{found['metadata']['name']}")


def _account(name: str) -> str:
    return f"system:serviceaccount:{names.NAMESPACE}:{name}"

"""Are the rights of deploy/ in force? An API server answers 403 for a moment after a binding was written.

Takes the manifests, and a client that may check for others (SubjectAccessReview); returns what is not granted yet. One
check per binding and account: bindings come into force whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubernetes.client import ApiClient

from kube import apply

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ROLES = {"ClusterRole", "Role"}
BINDINGS = {"ClusterRoleBinding", "RoleBinding"}
Raw = Mapping[str, Any]


def missing_rights(api: ApiClient, manifests: Iterable[Raw]) -> list[str]:
    """Sentences, one for each binding that is not in force; none where all are."""
    return [
        f"{review['user']} may not {attributes['verb']} {attributes['resource']} yet"
        for review in reviews(manifests)
        if (attributes := review["resourceAttributes"])
        and not apply.create(api, REVIEWS, {"spec": review})["status"].get("allowed")
    ]


def reviews(manifests: Iterable[Raw]) -> Iterator[dict[str, Any]]:
    """For each account of each binding, a question that only this binding answers with yes."""
    for subject, role, namespace in bound(manifests):
        yield {
            "user": f"system:serviceaccount:{subject['namespace']}:{subject['name']}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": _attributes(role["rules"][0], namespace),
        }


def bound(manifests: Iterable[Raw]) -> Iterator[tuple[Raw, Raw, str]]:
    """For each account of each binding: subject, role, and the namespace in which it has it; empty: all of them."""
    found = list(manifests)
    roles = {_key(body["kind"], body["metadata"]): body for body in found if body["kind"] in ROLES}
    for binding in (body for body in found if body["kind"] in BINDINGS):
        role = roles[_key(binding["roleRef"]["kind"], {**binding["metadata"], "name": binding["roleRef"]["name"]})]
        for subject in binding["subjects"]:
            yield subject, role, binding["metadata"].get("namespace", "")


def _key(kind: str, metadata: Raw) -> tuple[str, str, str]:
    return kind, "" if kind == "ClusterRole" else metadata["namespace"], metadata["name"]


def _attributes(rule: Raw, namespace: str) -> dict[str, str]:
    resource, _, subresource = rule["resources"][0].partition("/")
    return {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
        "namespace": namespace,
        "name": rule.get("resourceNames", [""])[0],
    }

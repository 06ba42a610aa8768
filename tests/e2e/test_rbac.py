"""RBAC of deploy/ on the real API server: every resource and verb there is, tried with the accounts' own tokens.

What is granted is a short table; everything else that discovery lists answers 403, by a request and not by a review.
Verbs: what the programs use and no more (tests/e2e/containers/test_rights.py compares with the audit log).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.builders.objects import lease
from tests.e2e import fleet
from tests.e2e.fleet import EnabledNode
from tests.e2e.real_cluster import AGENT, CONTROLLER, MERGE, Answer, RealCluster, call
from tests.e2e.wide_rights import everything_granted

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
# Every authenticated client may send these (system:basic-user).
ABOUT_ONESELF = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")
# From Kubernetes 1.37 on every service account may read these (system:cluster-trust-bundle-discovery).
OF_EVERY_ACCOUNT = {"clustertrustbundles.certificates.k8s.io": {"get", "list", "watch"}}
PLANS = f"{names.PLURAL}.{names.GROUP}"
# What kube-scheduler's filters read in addition to pods and nodes.
READ_BY_FILTERS = (
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "replicationcontrollers",
    "services",
    "deviceclasses.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "replicasets.apps",
    "statefulsets.apps",
    "storageclasses.storage.k8s.io",
)
GRANTED: dict[str, dict[str, set[str]]] = {
    CONTROLLER: {
        PLANS: {"get", "list", "watch", "create", "patch", "delete"},
        f"{PLANS}/status": {"patch"},
        "pods": {"list", "watch"},
        "pods/status": {"patch"},
        "nodes": {"get", "list", "watch", "patch"},
        "events": {"create", "patch"},
        "leases.coordination.k8s.io": {"list", "watch", "create", "delete"},
        "tokenreviews.authentication.k8s.io": {"create"},
        "subjectaccessreviews.authorization.k8s.io": {"create"},
        **{title: {"list", "watch"} for title in READ_BY_FILTERS},
    },
    AGENT: {
        PLANS: {"list", "watch"},
        f"{PLANS}/status": {"patch"},
        "pods": {"list", "watch"},
        "nodes": {"get", "list", "watch", "patch"},
        "nodes/status": {"patch"},
        "events": {"create", "patch"},
        "leases.coordination.k8s.io": {"create", "patch"},
    },
}
# Granted in gpuplan's namespace only.
IN_OWN_NAMESPACE = {CONTROLLER: {"leases.coordination.k8s.io"}, AGENT: {"leases.coordination.k8s.io"}}
# What the policies let pass for an object of the account's own, should one be the first that is found.
OPEN_BY_POLICY = {
    CONTROLLER: {"delete gpupartitionplans.gpuplan.dev", "deletecollection gpupartitionplans.gpuplan.dev"},
    AGENT: set[str](),
}
CLUSTER_WIDE_PODS = {"list", "watch"}


@dataclass(frozen=True, slots=True)
class Resource:
    """One line of discovery."""

    group: str
    version: str
    name: str
    namespaced: bool

    @property
    def title(self) -> str:
        plain, _, subresource = self.name.partition("/")
        return (f"{plain}.{self.group}" if self.group else plain) + (f"/{subresource}" if subresource else "")

    def path(self, namespace: str, name: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        plain, _, subresource = self.name.partition("/")
        place = f"{root}/namespaces/{namespace}/{plain}" if self.namespaced else f"{root}/{plain}"
        return place + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")


def resources(api: ApiClient) -> Iterator[Resource]:
    """Everything that the server serves, in its preferred versions."""
    groups = apply.get(api, "/apis")["groups"]
    versions = [("", "v1"), *((group["name"], group["preferredVersion"]["version"]) for group in groups)]
    for group, version in versions:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        for found in apply.get(api, path)["resources"]:
            yield Resource(group, version, found["name"], found["namespaced"])


def attempt(api: ApiClient, resource: Resource, verb: str, namespace: str) -> int:
    """The status of one request of that verb; nothing is written even where it is allowed."""
    dry = {"dryRun": "All"}
    one, all_of_them = resource.path(namespace, "e2e-nothing"), resource.path(namespace, "")
    where = one if "/" in resource.name else all_of_them
    match verb:
        case "get":
            return call(api, "GET", one).status
        case "list":
            return call(api, "GET", all_of_them, limit="1").status
        case "watch":
            return call(api, "GET", all_of_them, watch="true", timeoutSeconds="1").status
        case "create":
            return call(api, "POST", where, {"metadata": {"name": "e2e-nothing"}}, **dry).status
        case "update":
            return call(api, "PUT", one, {"metadata": {"name": "e2e-nothing"}}, **dry).status
        case "patch":
            return call(api, "PATCH", one, {"metadata": {"labels": {"e2e": "x"}}}, MERGE, **dry).status
        case "delete":
            return call(api, "DELETE", one, **dry).status
        case _:
            return call(api, "DELETE", all_of_them, **dry).status


def verbs_of(resource: Resource) -> tuple[str, ...]:
    """A subresource has no collection; to watch it or to list it means its parent."""
    return VERBS if "/" not in resource.name else ("get", "create", "update", "patch", "delete")


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[EnabledNode]:
    """With an agent whose token is bound to it."""
    found = fleet.enable(cluster, "rbac-node")
    yield found
    apply.delete(cluster.admin, f"/api/v1/nodes/{found.name}")


def client(cluster: RealCluster, node: EnabledNode, who: str) -> ApiClient:
    """By each token that there can be of our accounts."""
    if who == "bound agent":
        return node.agent
    return fleet.controller(cluster) if who == CONTROLLER else cluster.bearer(cluster.token(AGENT))


@pytest.mark.parametrize("who", [CONTROLLER, AGENT, "bound agent"])
def test_every_other_verb_and_resource_is_refused(cluster: RealCluster, node: EnabledNode, who: str) -> None:
    api = client(cluster, node, who)
    account = CONTROLLER if who == CONTROLLER else AGENT
    tried, wrong = 0, []
    for resource in resources(cluster.admin):
        if resource.name in ABOUT_ONESELF:
            continue
        granted = GRANTED[account].get(resource.title, OF_EVERY_ACCOUNT.get(resource.title, set()))
        for verb in verbs_of(resource):
            for namespace in (names.NAMESPACE, "kube-system") if resource.namespaced else ("",):
                if verb in granted and _granted_there(account, resource, verb, namespace):
                    continue
                tried += 1
                status = attempt(api, resource, verb, namespace)
                if status != 403:
                    wrong.append(f"{verb} {resource.title} in {namespace or 'the cluster'}: {status}")
    assert wrong == []
    assert tried > 500


@pytest.mark.parametrize("who", [CONTROLLER, "bound agent"])
def test_no_kind_is_open_where_rbac_is(cluster: RealCluster, node: EnabledNode, who: str) -> None:
    """Each kind of which there is an object, with a copy to create; all verbs that write, RBAC granting everything."""
    api, wrong, tried = client(cluster, node, who), [], set()
    account = CONTROLLER if who == CONTROLLER else AGENT
    with everything_granted(cluster, account):
        for resource in resources(cluster.admin):
            found = None if "/" in resource.name else first_object(cluster.admin, resource)
            if found is None or resource.group == "admissionregistration.k8s.io":
                continue  # policies judge everything but policies
            for verb, answer in writes(api, resource, found):
                tried.add(resource.title)
                about_own = f"{verb} {resource.title}" in OPEN_BY_POLICY[account]
                # A copy that its kind's own validation refuses does not reach the policies; the other verbs do.
                refused = {403, 405, 422} if verb in ("create", "update") else {403, 405}
                if answer.status not in refused and not about_own:
                    wrong.append(f"{verb} {resource.title} {found['metadata']['name']}: {answer}")
    assert wrong == []
    assert len(tried) > 20, tried


def first_object(api: ApiClient, resource: Resource) -> dict[str, Any] | None:
    """Whatever there is of it in gpuplan's namespace, in kube-system or in the cluster."""
    for namespace in (names.NAMESPACE, "kube-system", "default") if resource.namespaced else ("",):
        answer = call(api, "GET", resource.path(namespace, ""))
        for item in answer.body.get("items") or () if answer.allowed else ():
            return dict(item)
    return None


def writes(api: ApiClient, resource: Resource, found: dict[str, Any]) -> Iterator[tuple[str, Answer]]:
    """Create, update, patch and delete it, for nothing; its own metadata makes the requests valid."""
    dry = {"dryRun": "All"}
    namespace, name = found["metadata"].get("namespace", ""), found["metadata"]["name"]
    one, labels = resource.path(namespace, name), {"metadata": {"labels": {"e2e": "x"}}}
    copy = {key: value for key, value in found.items() if key not in ("metadata", "status")}
    kept = {key: value for key, value in found["metadata"].items() if key in ("labels", "annotations", "namespace")}
    # A namespace is refused while it is not there, a role's or service's copy may clash with the first in a field.
    if resource.name not in ("services", "priorityclasses"):
        new = {**copy, "metadata": {**kept, "name": "e2e-copy"}}
        if resource.name == "gpupartitionplans":
            new["spec"] = {"nodeName": "e2e-copy", "mode": "Manual"}
        yield "create", call(api, "POST", resource.path(namespace, ""), new, **dry)
    changed = {**found, "metadata": {**found["metadata"], "labels": {"e2e": "x"}}}
    yield "update", call(api, "PUT", one, changed, **dry)
    yield "patch", call(api, "PATCH", one, labels, MERGE, **dry)
    yield "delete", call(api, "DELETE", one, **dry)
    yield "deletecollection", call(api, "DELETE", resource.path(namespace, ""), **dry)


def _granted_there(account: str, resource: Resource, verb: str, namespace: str) -> bool:
    if namespace == names.NAMESPACE or not resource.namespaced:
        return True
    if resource.title in IN_OWN_NAMESPACE[account]:
        return False
    return not (resource.title == "pods" and verb not in CLUSTER_WIDE_PODS)


@pytest.mark.parametrize("account", [CONTROLLER, AGENT])
def test_every_granted_verb_passes_rbac(cluster: RealCluster, account: str) -> None:
    """By review: the policies, which come after RBAC, may still refuse the request of this test."""
    api = fleet.controller(cluster) if account == CONTROLLER else cluster.bearer(cluster.token(AGENT))
    refused = []
    for title, verbs in GRANTED[account].items():
        plain, _, subresource = title.partition("/")
        resource, _, group = plain.partition(".")
        for verb in sorted(verbs):
            attributes = {"verb": verb, "resource": resource, "group": group, "namespace": names.NAMESPACE}
            attributes |= {"subresource": subresource} if subresource else {}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            answer = apply.create(api, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
            if not answer["status"]["allowed"]:
                refused.append(f"{verb} {title}")
    assert refused == []


@pytest.mark.parametrize("who", [CONTROLLER, AGENT, "bound agent"])
def test_no_account_impersonates_another(cluster: RealCluster, node: EnabledNode, who: str) -> None:
    """Rights that are no verbs on resources: to impersonate, and what the API server reports of itself."""
    account = f"system:serviceaccount:{names.NAMESPACE}:{CONTROLLER if who != CONTROLLER else AGENT}"
    for user in (account, "system:admin", "system:node:rbac-node"):
        api = client(cluster, node, who) if who != "bound agent" else cluster.bearer(node.token)
        api.default_headers["Impersonate-User"] = user
        answer = call(api, "GET", "/api/v1/nodes", limit="1")
        api.default_headers.pop("Impersonate-User")
        assert answer.status == 403
        assert "cannot impersonate" in answer.message
    api = client(cluster, node, who)
    for path in ("/metrics", "/logs/", "/debug/pprof/", "/configz"):
        assert call(api, "GET", path).status in (403, 404), path


def test_the_controller_reads_and_updates_its_own_lease_and_deletes_those_of_agents(cluster: RealCluster) -> None:
    api = fleet.controller(cluster)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
    for name, allowed in ((names.CONTROLLER_LEASE, True), (names.agent_lease("n1"), False)):
        created = apply.create(cluster.admin, path, lease(name))
        answer = call(api, "PUT", f"{path}/{name}", created)
        assert answer.allowed is allowed, answer.message
        assert call(api, "GET", f"{path}/{name}").allowed is allowed
        assert call(api, "DELETE", f"{path}/{name}", dryRun="All").allowed is not allowed
        apply.delete(cluster.admin, f"{path}/{name}")


def test_a_device_plugin_has_no_rights(cluster: RealCluster) -> None:
    api = cluster.bearer(cluster.token("gpuplan-device-plugin"))
    for resource in resources(cluster.admin):
        if "/" not in resource.name and resource.name not in ABOUT_ONESELF:
            assert attempt(api, resource, "create", names.NAMESPACE) == 403
            if resource.title not in OF_EVERY_ACCOUNT:
                assert attempt(api, resource, "list", names.NAMESPACE) == 403

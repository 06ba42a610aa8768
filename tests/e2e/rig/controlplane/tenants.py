"""The real control plane as the base of a simulated cluster: every program has the rights that deploy/ gives.

Takes programs, and the manifests of deploy/; implements the `ControlPlane` protocol. Kubelets have the identity of
their node; the controller has its service account's token, each agent one that is bound to its DaemonSet's pod and
fetched as its kubelet would. Only the person who started the cluster is an administrator.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import ApiClient

from crds.v1alpha1.names import LABEL_PRODUCT, NAMESPACE
from kube import apply, clients
from sandbox.control_plane import ControlPlaneFailed, Role
from tests.e2e.rig.controlplane.plane import RealControlPlane
from tests.e2e.rig.controlplane.rights import missing_rights

MANIFESTS = Path(__file__).parents[4] / "deploy" / "manifests"
MANAGER = "gpuplan-sandbox"
AGENT = "gpuplan-agent"
CONTROLLER = "gpuplan-controller"
POD_SECONDS = 180.0
RIGHTS_SECONDS = 60.0
TOKEN_SECONDS = 8 * 24 * 3600  # they are not renewed; the certificates last as long
# Paths of the kinds in deploy/manifests, in no order: the files' own counts.
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


class RealServers:
    """A started `RealControlPlane` with gpuplan's accounts, rights and policies in it."""

    def __init__(self, plane: RealControlPlane, manifests: Path = MANIFESTS) -> None:
        self.plane = plane
        self._manifests = manifests
        self._clients: dict[str | None, ApiClient] = {}

    @property
    def version(self) -> str:
        """Of the servers."""
        return self.plane.version

    def start(self) -> None:
        """Start the servers and install what deploy/ ships, without the controller's Deployment: it is a process."""
        self.plane.start()
        try:
            manifests = list(manifests_of(self._manifests))
            for manifest in manifests:
                if manifest["kind"] in COLLECTIONS:
                    self._install(_for_sandbox(manifest))
            self._wait_for_rights(manifests)
        except BaseException:
            self.plane.stop()
            raise

    def begin_scheduling(self) -> None:
        """kube-scheduler is at it since the start."""

    def kubeconfig(self, role: Role, node: str = "") -> str:
        """Certificates for people and kubelets, tokens for the product."""
        match role:
            case Role.PERSON:
                return self.plane.kubeconfig()
            case Role.KUBELET:
                return self._kubelet(node)
            case Role.CONTROLLER:
                return self.plane.kubeconfig_with(self._token(CONTROLLER, {}, self._client(None)))
            case Role.AGENT:
                return self.plane.kubeconfig_with(self._agent_token(node))

    def stop(self) -> None:
        """End the servers."""
        self.plane.stop()

    def _install(self, manifest: Mapping[str, Any]) -> None:
        collection = COLLECTIONS[manifest["kind"]].format(namespace=manifest["metadata"].get("namespace", ""))
        path = f"{collection}/{manifest['metadata']['name']}"
        apply.apply(self._client(None), path, manifest, manager=MANAGER, force=True)

    def _wait_for_rights(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        deadline = time.monotonic() + RIGHTS_SECONDS
        while missing := missing_rights(self._client(None), manifests):
            if time.monotonic() > deadline:
                raise ControlPlaneFailed(f"after {RIGHTS_SECONDS:.0f} s {'; '.join(missing)}")
            time.sleep(0.1)

    def _kubelet(self, node: str) -> str:
        return self.plane.kubeconfig_of(f"system:node:{node}", ("system:nodes",))

    def _agent_token(self, node: str) -> str:
        pod = self._agent_pod(node)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        return self._token(AGENT, {"boundObjectRef": bound}, self._client(node))

    def _agent_pod(self, node: str) -> Mapping[str, Any]:
        """The pod that the DaemonSet controller made for the node, once the scheduler has bound it."""
        query = {
            "labelSelector": f"app.kubernetes.io/name={AGENT}",
            "fieldSelector": f"spec.nodeName={node}",
        }
        deadline = time.monotonic() + POD_SECONDS
        while time.monotonic() < deadline:
            pods = apply.get(self._client(None), f"/api/v1/namespaces/{NAMESPACE}/pods", query=query)["items"]
            for pod in pods:
                if not pod["metadata"].get("deletionTimestamp"):
                    found: Mapping[str, Any] = pod
                    return found
            time.sleep(0.1)
        raise ControlPlaneFailed(f"no pod of DaemonSet {AGENT} was bound to node {node} in {POD_SECONDS:.0f} s")

    def _token(self, account: str, bound: Mapping[str, Any], requester: ApiClient) -> str:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS, **bound},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        return str(apply.create(requester, path, body)["status"]["token"])

    def _client(self, node: str | None) -> ApiClient:
        """Of the administrator, or of a node's kubelet."""
        if node not in self._clients:
            path = self.plane.directory / f"client-{len(self._clients)}.kubeconfig"
            path.touch(mode=0o600)
            path.write_text(self.plane.kubeconfig() if node is None else self._kubelet(node))
            self._clients[node] = clients.load(str(path))
        return self._clients[node]


def manifests_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object of every file, in the order in which kubectl applies them."""
    for path in sorted(folder.glob("*.yaml")):
        yield from objects_of(path.read_text())


def objects_of(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a file, those of its Lists one by one."""
    for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if document:
            yield from document["items"] if document["kind"] == "List" else [document]


def _for_sandbox(manifest: dict[str, Any]) -> dict[str, Any]:
    """DaemonSets as a sandbox has them: on every node with GPUs, leaving CPU and memory to the pods of people."""
    if manifest["kind"] == "DaemonSet":
        pods = manifest["spec"]["template"]["spec"]
        terms = [{"matchExpressions": [{"key": LABEL_PRODUCT, "operator": "Exists"}]}]
        if "affinity" in pods:  # the MPS daemons go by a label that the agent sets
            nodes = pods["affinity"]["nodeAffinity"]
            nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = terms
        for container in pods["containers"]:
            container.pop("resources", None)
    return manifest

"""Creates the objects of a sandbox cluster: the CRD, the manifests, and the namespaces that pods need.

Takes manifests and POSTs them in an order that a real API server accepts as well; a refusal names the object. Keeps no
state.
"""

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiClient

from crds.definition import text
from crds.v1alpha1 import names
from crds.v1alpha1.paths import NODES, PLANS
from kube import apply
from kube.errors import ApiError, Conflict
from kube.yaml_text import read_yaml

COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "Node": NODES,
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "GPUPartitionPlan": PLANS,
}
INSTALL_SECONDS = 30.0


class RefusedManifestError(Exception):
    """The API server does not take this object; the text is its own."""

    def __init__(self, body: Mapping[str, Any], error: ApiError) -> None:
        super().__init__(error.message)
        self.body = body


@dataclass(eq=False)
class ClusterObjects:
    """Creates objects through one client."""

    api: ApiClient
    report: Callable[[str], None]
    stopping: threading.Event

    def create(self, manifest: Mapping[str, Any]) -> None:
        """POST a copy of it."""
        self.post(copy_of(manifest))

    def post(self, body: dict[str, Any]) -> bool:
        """False: a namespace that is there already."""
        namespace = body["metadata"].setdefault("namespace", "default") if "{" in COLLECTIONS[body["kind"]] else ""
        try:
            apply.create(self.api, COLLECTIONS[body["kind"]].format(namespace=namespace), body)
        except ApiError as error:
            if isinstance(error, Conflict) and body["kind"] == "Namespace":
                return False
            raise RefusedManifestError(body, error) from error
        if body["kind"] == "Namespace":
            self._await_account(body["metadata"]["name"])
        return True

    def _await_account(self, namespace: str) -> None:
        """A real API server refuses pods until a controller has made the namespace's service account."""
        deadline = time.monotonic() + INSTALL_SECONDS
        while not self._answers(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"namespace {namespace} got no service account")
            self.stopping.wait(0.05)

    def add_namespaces(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Pods of a real cluster come without their Namespace: make those that no file declares."""
        declared = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Namespace"}
        used = {manifest["metadata"].get("namespace", "default") for manifest in manifests}
        for name in sorted(used - declared):
            if self.post({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}):
                self.report(f"namespace {name} is in none of the files and was created")

    def install(self) -> None:
        """The CRD, until it is served, and gpuplan's namespace."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        crd: Any = read_yaml(text())
        apply.create(self.api, path, crd)
        self.post({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}})
        deadline = time.monotonic() + INSTALL_SECONDS
        # A real server reports Established first, and answers 429 for some moments more.
        while not (_established(apply.get(self.api, f"{path}/{names.PLURAL}.{names.GROUP}")) and self._answers(PLANS)):
            if time.monotonic() > deadline:
                raise RuntimeError("the API server did not establish the CRD")
            self.stopping.wait(0.05)

    def _answers(self, path: str) -> bool:
        try:
            apply.get(self.api, path)
        except ApiError:
            return False
        return True


def copy_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that may be changed."""
    return copy.deepcopy(dict(manifest))


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []  # null at first on Kubernetes 1.30
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

"""A real control plane as the tests see it: clients per identity, kubectl, tokens bound to pods, and waiting.

Takes a started control plane; gives API clients for the administrator, for people, for kubelets and for the service
accounts of deploy/. Refusals are values (`Answer`), because here they are the expected result.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply, clients
from kube.errors import ApiError
from kube.transport import request
from tests.builders import objects as builders
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.rights import missing_rights
from tests.e2e.rig.controlplane.tenants import manifests_of
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
MANIFESTS = ROOT / "deploy" / "manifests"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLANS = f"/apis/{names.API_VERSION}/{names.PLURAL}"
NODES = "/api/v1/nodes"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
AGENT = "gpuplan-agent"
CONTROLLER = "gpuplan-controller"
PLUGIN = "gpuplan-device-plugin"
T = TypeVar("T")

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered: 2xx or a refusal."""

    status: int
    message: str
    body: Mapping[str, Any]

    @property
    def allowed(self) -> bool:
        return 200 <= self.status < 300


def call(
    api: ApiClient,
    method: str,
    path: str,
    body: Any = None,
    content_type: str = "application/json",
    **query: str,
) -> Answer:
    """One request; a refusal is an answer, too."""
    try:
        text = request(api, method, path, body=body, content_type=content_type, query=query)
    except ApiError as error:
        return Answer(error.status, error.message, error.body)
    return Answer(200, "", json.loads(text) if text else {})


def quietly(observe: Callable[[], T]) -> T | None:
    """The observation; None while the API server cannot answer."""
    try:
        return observe()
    except ApiError:
        return None


def plan(name: str, **spec: Any) -> dict[str, Any]:
    """A plan with these fields of spec in addition to nodeName."""
    return builders.manifest(builders.plan(name, spec=spec))


class RealCluster:
    """One control plane and its clients."""

    def __init__(self, plane: RealControlPlane, folder: Path) -> None:
        self.plane = plane
        self._folder = folder
        self._clients: dict[str, ApiClient] = {}
        self.admin = self._client("admin", plane.kubeconfig())

    @property
    def minor(self) -> int:
        """36 of 1.36.3."""
        return int(self.plane.version.split(".")[1])

    def person(self, name: str, groups: Sequence[str] = ()) -> ApiClient:
        """A person with a client certificate."""
        if name not in self._clients:
            self._clients[name] = self._client(name, self.plane.kubeconfig_of(name, groups))
        return self._clients[name]

    def kubelet(self, node: str) -> ApiClient:
        """The identity of a node's kubelet."""
        return self.person(f"system:node:{node}", ("system:nodes",))

    def agent_of(self, node: str) -> ApiClient:
        """The administrator in the place of a node's agent, whose node and pod need not exist."""
        if f"agent-of-{node}" not in self._clients:
            client = self._client(f"agent-of-{node}", self.plane.kubeconfig())
            client.default_headers["Impersonate-User"] = f"system:serviceaccount:{names.NAMESPACE}:{AGENT}"
            client.default_headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = node
            self._clients[f"agent-of-{node}"] = client
        return self._clients[f"agent-of-{node}"]

    def bearer(self, token: str) -> ApiClient:
        """The holder of the token."""
        return self._client(f"token-{abs(hash(token))}", self.plane.kubeconfig_with(token))

    def token(self, account: str, *, pod: Mapping[str, Any] | None = None, requester: ApiClient | None = None) -> str:
        """A token of a service account in gpuplan's namespace, bound to a pod as a kubelet would request it."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/{account}/token"
        return str(apply.create(requester or self.admin, path, body)["status"]["token"])

    def _client(self, name: str, kubeconfig: str) -> ApiClient:
        path = self._folder / f"{name.replace(':', '_')}.kubeconfig"
        path.write_text(kubeconfig)
        return clients.load(str(path))

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = False) -> str:
        """Standard output and error of the real kubectl, as the administrator."""
        program = Path(sys.executable).with_name("kubectl")
        config = str(self._folder / "admin.kubeconfig")
        done = subprocess.run(
            [program, "--kubeconfig", config, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout + done.stderr

    def install(self) -> None:
        """The CRD, then deploy/ in the order of its files, by kubectl."""
        self.kubectl("apply", "-f", str(CRD), check=True)
        self.wait_established()
        self.kubectl("apply", "-f", str(MANIFESTS), check=True)
        eventually(lambda: not missing_rights(self.admin, manifests_of(MANIFESTS)), "the rights are in force")
        probe = plan("policy-probe", planned={"gpus": []})
        eventually(
            lambda: call(self.admin, "POST", PLANS, probe, dryRun="All").status == 403, "the policies are in force"
        )

    def wait_established(self, name: str = f"{names.PLURAL}.{names.GROUP}") -> None:
        """Until the kind is served."""

        def established() -> bool:
            crd = apply.get(self.admin, f"{CRDS}/{name}")
            conditions = crd.get("status", {}).get("conditions") or []  # null at first on 1.30
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        eventually(established, f"{name} is established")
        eventually(lambda: call(self.admin, "GET", PLANS).allowed, f"{names.PLURAL} are served")


@contextmanager
def running_cluster(
    programs: Binaries, folder: Path, extra: Mapping[str, Sequence[str]] | None = None
) -> Iterator[RealCluster]:
    """A control plane of its own; `extra` are flags of its programs."""
    plane = RealControlPlane(programs, directory=folder / "plane", extra=extra)
    plane.start()
    try:
        yield RealCluster(plane, folder)
    finally:
        plane.stop()

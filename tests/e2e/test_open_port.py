"""Who may read `/decisions` on the port that is open in the pod network, against the real control plane.

The account of the manifests asks the API server about other people's tokens.
"""

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from controller.wiring import READS_ALL_PODS
from kube import apply
from kube.access import Access
from kube.serve import Page, Private, Server
from tests.e2e import fleet
from tests.e2e.real_cluster import RealCluster
from tests.waiting import eventually

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
READER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


def account(cluster: RealCluster, name: str) -> str:
    """A service account of another person; its token."""
    apply.create(cluster.admin, ACCOUNTS, {"metadata": {"name": name}})
    made = apply.create(cluster.admin, f"{ACCOUNTS}/{name}/token", {"spec": {"expirationSeconds": 3600}})
    return str(made["status"]["token"])


def bind(cluster: RealCluster, kind: str, place: str, name: str) -> None:
    """The right to list pods: everywhere, or in one namespace."""
    role = {"metadata": {"name": name}, "rules": [READER]}
    apply.create(cluster.admin, f"{RBAC}/{place}{kind.lower()}s", role)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    apply.create(cluster.admin, f"{RBAC}/{place}{kind.lower()}bindings", binding)


@pytest.fixture
def port(cluster: RealCluster) -> Iterator[int]:
    access = Access(fleet.controller(cluster), READS_ALL_PODS, "list pods in all namespaces")
    server = Server("127.0.0.1", 0, {"/decisions": Private(lambda: Page(body=b"names"), access.refusal)})
    server.start()
    yield server.port
    server.stop()


def answer(port: int, path: str, token: str = "", seconds: float = 10, *, host: str = "127.0.0.1") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(f"http://{host}:{port}{path}", headers=headers), timeout=seconds) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_who_may_list_pods_everywhere_reads_the_decisions(cluster: RealCluster, port: int) -> None:
    reader, local, powerless = (account(cluster, name) for name in ("decisions-reader", "one-namespace", "powerless"))
    bind(cluster, "ClusterRole", "", "decisions-reader")
    bind(cluster, "Role", "namespaces/default/", "one-namespace")
    eventually(lambda: answer(port, "/decisions", reader) == (200, "names"), "the right counts")
    for token in (local, powerless):
        code, words = answer(port, "/decisions", token)
        assert (code, "may not list pods in all namespaces" in words) == (403, True)
    assert answer(port, "/decisions", reader[:-4] + "AAAA")[0] == 401
    assert answer(port, "/decisions")[0] == 401

"""One node on a real API server, for tests of the agent as a process."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crds.v1alpha1 import names
from kube import apply, clients
from kube.errors import NotFound
from tests import folders
from tests.apiserver import ApiServer
from tests.builders.objects import crd
from tests.nodeagent.real_node import NODE, PLAN, PODS, AgentNode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    found = ApiServer()
    found.start()
    api = clients.for_url(found.url)
    apply.create(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}}
    apply.create(api, "/api/v1/namespaces", namespace)
    yield found
    found.stop()


@pytest.fixture
def node(server: ApiServer) -> Iterator[AgentNode]:
    api = clients.for_url(server.url)
    status = {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": status}
    apply.create(api, "/api/v1/nodes", body)
    with tempfile.TemporaryDirectory(prefix="ga-", dir=folders.short()) as directory:  # unix sockets want short paths
        found = AgentNode(Path(directory), server)
        yield found
        found.stop()
    for path in (PLAN, f"/api/v1/nodes/{NODE}"):
        try:
            apply.delete(api, path)
        except NotFound:
            continue
    for pod in apply.get(api, PODS)["items"]:
        apply.delete(api, f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)

"""What the conformance tests stand on: a server, the real kubectl and the real client.

With GPUPLAN_CONFORMANCE_KUBECONFIG they run against that cluster instead of the sandbox. They then create and delete
objects of their own in the namespace `gpuplan-conformance`, nodes `conformance-…` and one definition. All pass on
kube-apiserver 1.36; 1.30 words five complaints differently and has no WatchList.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from tests.apiserver import ApiServer
from tests.sandbox.apiserver.probe import CARDPLANS, DEFINITION_FILE, NAMESPACE, Http, Kubectl, Plans
from tests.waiting import eventually


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a fresh sandbox server, or of the cluster that the environment names."""
    real = os.environ.get("GPUPLAN_CONFORMANCE_KUBECONFIG")
    if real:
        yield Path(real)
        return
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    with ApiServer() as server:
        path.write_text(server.kubeconfig())
        yield path


@pytest.fixture(scope="module")
def kubectl(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl-cache"))


@pytest.fixture(scope="module")
def api_client(kubeconfig: Path) -> Iterator[client.ApiClient]:
    configuration = client.Configuration()
    load: Any = config.load_kube_config
    load(str(kubeconfig), client_configuration=configuration)
    configuration.retries = False
    with client.ApiClient(configuration) as api:
        yield api
        api.rest_client.pool_manager.clear()


@pytest.fixture(scope="module")
def core(api_client: client.ApiClient) -> "client.CoreV1Api":  # quoted: the name alone imports every model
    return client.CoreV1Api(api_client)


@pytest.fixture(scope="module")
def http(api_client: client.ApiClient) -> Iterator[Http]:
    http = Http(api_client)
    yield http
    http.close()


@pytest.fixture(scope="module")
def namespace(http: Http) -> Iterator[str]:
    """A namespace of our own, with its default service account."""
    http("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    eventually(lambda: http("GET", account).status == 200, "the default service account")
    yield NAMESPACE
    http.clear(f"/api/v1/namespaces/{NAMESPACE}/pods")
    http("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    eventually(lambda: http("GET", f"/api/v1/namespaces/{NAMESPACE}").status == 404, "the namespace is gone")


@pytest.fixture(scope="module")
def definition(http: Http) -> Iterator[dict[str, Any]]:
    """The CRD of these tests, established; its objects go with it."""
    crd = yaml.safe_load(DEFINITION_FILE.read_text())
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    http("DELETE", f"{path}/{crd['metadata']['name']}")
    eventually(lambda: http("GET", f"{path}/{crd['metadata']['name']}").status == 404, "an old definition is gone")
    answer = http("POST", path, crd)
    assert answer.status == 201, answer.body
    eventually(lambda: http("GET", CARDPLANS).status == 200, "the definition is served")
    yield crd
    http("DELETE", f"{path}/{crd['metadata']['name']}")


@pytest.fixture
def plans(definition: dict[str, Any], http: Http) -> Iterator[Plans]:
    """Card plans; those that a test leaves behind are deleted."""
    yield Plans(http)
    http.clear(CARDPLANS)

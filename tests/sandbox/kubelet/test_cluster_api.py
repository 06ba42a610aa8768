"""The same kubelet over HTTP: against the sandbox's API server, what the API holds and what kubectl would show."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import ApiClient

from kube import apply, clients
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ScriptedRuntime
from tests.apiserver import ApiServer, exists
from tests.builders.objects import binding
from tests.sandbox.kubelet import builders
from tests.sandbox.kubelet.builders import MIG, NODE, container
from tests.sandbox.kubelet.conftest import QUICK, connects
from tests.sandbox.kubelet.fakes import FakePlugin
from tests.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def client() -> Iterator[ApiClient]:
    server = ApiServer(port=0)
    server.start()
    yield clients.for_url(server.url)
    server.stop()


@pytest.fixture
def plugin(client: ApiClient, root: Path) -> Iterator[FakePlugin]:
    """Of a node whose kubelet runs, with one device."""
    apply.create(client, "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **builders.node()})
    runtime = ScriptedRuntime()
    api = ClusterApi(client, NODE)
    kubelet = Kubelet(NODE, root, api, status_tick_seconds=0.05, runtime=runtime, timings=QUICK)
    kubelet.start()
    plugin = FakePlugin(kubelet.paths.plugin_dir, MIG).offer("MIG-0")
    eventually(lambda: connects(kubelet.paths.registration_socket), "kubelet.sock")
    plugin.serve().register()
    # Until the kubelet has read the first list it admits pods without a device, as the real one does.
    eventually(lambda: offered(client) == "1", "allocatable")
    yield plugin
    plugin.stop()
    kubelet.stop()
    runtime.close()


def offered(client: ApiClient) -> object:
    status: builders.Raw = apply.get(client, f"/api/v1/nodes/{NODE}")["status"]
    return status.get("allocatable", {}).get(MIG)


def bind(client: ApiClient, raw: builders.Raw) -> str:
    """Create a pod as people do, bind it as a scheduler does; its path."""
    spec = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
    metadata = {key: value for key, value in raw["metadata"].items() if key not in ("uid", "creationTimestamp")}
    apply.create(client, PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = f"{PODS}/{metadata['name']}"
    apply.create(client, f"{path}/binding", binding(metadata["name"], NODE))
    return path


def phase(client: ApiClient, path: str) -> str:
    return str(apply.get(client, path)["status"].get("phase"))


def test_the_node_is_ready_and_offers_the_device(client: ApiClient, plugin: FakePlugin) -> None:
    status: builders.Raw = apply.get(client, f"/api/v1/nodes/{NODE}")["status"]
    assert status["allocatable"][MIG] == "1"
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    assert status["capacity"]["cpu"] == "8"
    lease = apply.get(client, f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")
    assert lease["spec"]["holderIdentity"] == NODE


def test_a_pod_runs_finishes_and_tells_what_it_got(client: ApiClient, plugin: FakePlugin) -> None:
    path = bind(client, builders.pod("p", containers=[container(sleep=0.5, devices=1)]))
    eventually(lambda: phase(client, path) == "Running", "running")
    status = apply.get(client, path)["status"]

    conditions = {c["type"]: c for c in status["conditions"]}
    assert {kind: c["status"] for kind, c in conditions.items()} == dict.fromkeys(
        ["PodScheduled", "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"], "True"
    )
    assert "reason" not in conditions["Ready"], "what an earlier status said is gone"
    health = status["containerStatuses"][0]["allocatedResourcesStatus"]
    assert health == [{"name": MIG, "resources": [{"resourceID": "MIG-0", "health": "Healthy"}]}]
    eventually(lambda: phase(client, path) == "Succeeded", "finished")

    def events() -> set[tuple[str, str]]:
        items = apply.get(client, "/api/v1/namespaces/default/events")["items"]
        return {(event["reason"], event["involvedObject"]["name"]) for event in items}

    eventually(lambda: ("Started", "p") in events(), "the Event")


def test_a_deleted_pod_goes(client: ApiClient, plugin: FakePlugin) -> None:
    path = bind(client, builders.pod("p"))
    eventually(lambda: phase(client, path) == "Running", "running")

    apply.delete(client, path)
    eventually(lambda: not exists(client, path), "gone")


def test_a_rejected_pod_says_why(client: ApiClient, plugin: FakePlugin) -> None:
    first = bind(client, builders.pod("first"))
    eventually(lambda: phase(client, first) == "Running", "running")
    path = bind(client, builders.pod("p"))
    eventually(lambda: phase(client, path) == "Failed", "rejected")

    status = apply.get(client, path)["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "Requested: 1, Available: 0" in status["message"]
    apply.delete(client, path)
    eventually(lambda: not exists(client, path), "gone")

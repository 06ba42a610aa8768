"""The plugin with the sandbox's kubelet and API server: pods get devices, over restarts of either side."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client import ApiClient

from kube import apply, clients
from kube.kubelet_api.allocatable import read_allocatable
from nodeagent.handover.config import PluginConfig, write_config
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.runtime import ScriptedRuntime
from tests.apiserver import ApiServer
from tests.builders.objects import container, manifest, pod
from tests.nodeagent.device_plugin.conftest import PluginNode, Running
from tests.nodeagent.device_plugin.devices import GPU_B, MIG, SLICE, mig, mps
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("daemons_answer")]

PODS = "/api/v1/namespaces/default/pods"


def config(migs: int, slices: int, withdrawn: tuple[str, ...] = ()) -> PluginConfig:
    return PluginConfig.of([*map(mig, range(migs)), *map(mps, range(slices))], withdrawn)


class OneNode:
    """One API server and one node; the kubelet can be killed and started again over the same containers."""

    def __init__(self, server: ApiServer, node: PluginNode) -> None:
        self.api: ApiClient = clients.for_url(server.url)
        self._server, self._node = server, node
        self.runtime = ScriptedRuntime()
        self.kubelet = self.start_kubelet()

    def start_kubelet(self) -> Kubelet:
        access = ClusterApi(clients.for_url(self._server.url), "n")
        self.kubelet = Kubelet("n", self._node.kubelet_dir, access, status_tick_seconds=0.2, runtime=self.runtime)
        self.kubelet.start()
        return self.kubelet

    def run(self, name: str, resource: str, count: int = 1) -> None:
        body = pod(name, containers=[container("c", {resource: count}, sleep=600)], node="n")
        apply.create(self.api, PODS, manifest(body, status=False))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = apply.get(self.api, f"{PODS}/{name}").get("status") or {}
        return found

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase"))

    def allocatable(self, resource: str) -> str:
        return self._counted("allocatable", resource)

    def capacity(self, resource: str) -> str:
        return self._counted("capacity", resource)

    def _counted(self, which: str, resource: str) -> str:
        status = apply.get(self.api, "/api/v1/nodes/n").get("status") or {}
        return str((status.get(which) or {}).get(resource))

    def registered(self) -> dict[str, frozenset[str]]:
        shown = read_allocatable(self.kubelet.paths.pod_resources_socket, timeout_seconds=5)
        return dict(shown or {})


@pytest.fixture
def cluster(node: PluginNode) -> Iterator[OneNode]:
    with ApiServer() as server:
        apply.create(
            clients.for_url(server.url),
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
        )
        cluster = OneNode(server, node)
        yield cluster
        cluster.kubelet.stop()


def test_pods_run_on_what_the_plugin_advertises(
    node: PluginNode, cluster: OneNode, start_plugin: Callable[..., Running]
) -> None:
    plugin = start_plugin()
    node.load(config(2, 3))
    eventually(
        lambda: (cluster.allocatable(MIG), cluster.allocatable(SLICE)) == ("2", "3"),
        "(cluster.allocatable(MIG), cluster.allocatable(SLICE)) == ('2', '3')",
    )
    cluster.run("mig", MIG)
    cluster.run("mps", SLICE)
    eventually(
        lambda: (cluster.phase("mig"), cluster.phase("mps")) == ("Running", "Running"),
        "(cluster.phase('mig'), cluster.phase('mps')) == ('Running', 'Running')",
    )
    given = {
        value
        for record in cluster.runtime.containers()
        for name, value in record.request.options.env.items()
        if name == "NVIDIA_VISIBLE_DEVICES"
    }
    assert given in ({"MIG-0", GPU_B}, {"MIG-1", GPU_B})

    cluster.run("two", SLICE, 2)
    eventually(lambda: cluster.phase("two") == "Failed", "cluster.phase('two') == 'Failed'")
    assert "a container can use one MPS slice, this one requests 2" in cluster.status("two")["message"]

    cluster.kubelet.kill()
    cluster.start_kubelet()
    eventually(
        lambda: len(cluster.registered().get(MIG, ())) == 2 and len(cluster.registered().get(SLICE, ())) == 3,
        "two instances and three slices at the kubelet",
    )
    node.load(config(3, 3))
    eventually(lambda: cluster.allocatable(MIG) == "3", "cluster.allocatable(MIG) == '3'")
    assert cluster.phase("mig") == "Running"

    plugin.stop()
    eventually(lambda: cluster.registered() == {}, "no device at the kubelet")
    start_plugin()
    node.load(config(3, 3))
    eventually(lambda: len(cluster.registered().get(MIG, ())) == 3, "three instances at the kubelet")
    cluster.run("more", MIG)
    eventually(lambda: cluster.phase("more") == "Running", "cluster.phase('more') == 'Running'")


def test_no_pod_gets_a_withdrawn_id(node: PluginNode, cluster: OneNode, start_plugin: Callable[..., Running]) -> None:
    start_plugin()
    node.load(config(1, 0))
    eventually(lambda: cluster.registered() == {MIG: frozenset({"MIG-0"})}, "the device at the kubelet")
    write_config(node.files, config(1, 0, ("MIG-0",)))
    eventually(lambda: cluster.registered() == {}, "no device at the kubelet")
    cluster.run("late", MIG)
    eventually(lambda: cluster.phase("late") == "Failed", "cluster.phase('late') == 'Failed'")
    assert cluster.status("late")["reason"] in {"UnexpectedAdmissionError", f"OutOf{MIG}"}
    assert "MIG-0" not in node.files.ledger.read_text()
    node.load(config(1, 0))
    # In force means sent: the kubelet still refuses a pod that comes before it has read the list.
    eventually(lambda: cluster.registered() == {MIG: frozenset({"MIG-0"})}, "the device at the kubelet again")
    cluster.run("next", MIG)
    eventually(lambda: cluster.phase("next") == "Running", "cluster.phase('next') == 'Running'")
    assert "MIG-0" in node.files.ledger.read_text()


def test_an_unhealthy_id_goes_to_no_pod_and_stays_with_its_holder(
    node: PluginNode, cluster: OneNode, start_plugin: Callable[..., Running]
) -> None:
    start_plugin()
    node.load(config(1, 0))
    eventually(lambda: cluster.allocatable(MIG) == "1", "cluster.allocatable(MIG) == '1'")
    cluster.run("holder", MIG)
    eventually(lambda: cluster.phase("holder") == "Running", "cluster.phase('holder') == 'Running'")

    node.load(replace(config(1, 0), unhealthy=("MIG-0",)))

    eventually(
        lambda: (cluster.capacity(MIG), cluster.allocatable(MIG)) == ("1", "0"),
        "(cluster.capacity(MIG), cluster.allocatable(MIG)) == ('1', '0')",
    )
    assert cluster.registered() == {}
    cluster.run("late", MIG)
    eventually(lambda: cluster.phase("late") == "Failed", "cluster.phase('late') == 'Failed'")
    assert cluster.phase("holder") == "Running"
    (status,) = cluster.status("holder")["containerStatuses"]
    assert status["allocatedResourcesStatus"][0]["resources"] == [{"resourceID": "MIG-0", "health": "Unhealthy"}]

    node.load(config(1, 0))
    eventually(lambda: cluster.allocatable(MIG) == "1", "cluster.allocatable(MIG) == '1'")

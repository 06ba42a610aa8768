"""Nodes that come and go while a sandbox is up, as `kubectl apply` and `kubectl delete` make them."""

from collections.abc import Iterator

import pytest

from controller.config.settings import Settings, load_settings
from kube import apply
from sandbox.cluster import Cluster
from sandbox.objects import RefusedManifestError
from tests.builders import objects
from tests.builders.objects import Json
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def node(name: str, **labels: str) -> Json:
    """As a person writes it: without a status."""
    return objects.manifest(objects.node(name, labels=labels), status=False)


def pod(name: str, namespace: str) -> Json:
    return objects.manifest(objects.pod(name, namespace=namespace, requests={}))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cluster(said: list[str]) -> Iterator[Cluster]:
    found = Cluster(report=said.append)
    yield found
    found.stop()


@pytest.mark.thorough
def test_nodes_come_and_go(cluster: Cluster, said: list[str]) -> None:
    cluster.start([node("a"), node("b"), pod("p", "team")])
    assert said == ["namespace team is in none of the files and was created"]
    eventually(lambda: [found["status"].get("phase") for found in cluster.pods()] == ["Running"], "p runs")
    host = cluster.pods()[0]["spec"]["nodeName"]
    before = {name: found.root for name, found in cluster.nodes.items()}
    assert cluster.nodes_without_agent == {"a", "b"}
    settings = load_settings(cluster.directory / "controller.yaml")
    assert settings.batch_window_idle_seconds == Settings().batch_window_idle_seconds, "it runs with what ships"

    apply.delete(cluster.api, f"/api/v1/nodes/{host}")
    eventually(lambda: cluster.pods() == [], "its pod is collected")
    assert host not in cluster.nodes
    cluster.create(node("c"))
    cluster.create(node(host))
    eventually(lambda: cluster.nodes.keys() == {"a", "b", "c"}, "both are there")
    roots = {name: found.root for name, found in cluster.nodes.items()}
    assert len(set(roots.values())) == 3
    assert {name: roots[name] for name in before} == before  # the same machine came back

    cluster.create(node("odd", **{"nvidia.com/gpu.product": "Z9"}))
    eventually(lambda: len(said) == 2, "it is reported")
    assert said[1].startswith("node odd is left without hardware until it is right: metadata.labels[")
    path = "/api/v1/nodes/odd"
    apply.merge_patch(cluster.api, path, {"metadata": {"labels": {"nvidia.com/gpu.product": None}}})
    eventually(lambda: "odd" in cluster.nodes, "it is right now")


def test_what_the_api_server_refuses_is_reported_with_its_object(cluster: Cluster) -> None:
    body = {"metadata": {"name": "n"}, "spec": {"nodeName": "other"}}
    with pytest.raises(RefusedManifestError, match="nodeName") as refusal:
        cluster.start([{"apiVersion": "gpuplan.dev/v1alpha1", "kind": "GPUPartitionPlan", **body}])
    assert refusal.value.body["metadata"]["name"] == "n"


@pytest.mark.thorough
def test_a_process_that_cannot_stay_up_is_named_with_the_end_of_its_log(cluster: Cluster) -> None:
    cluster.start([node("a")])
    eventually(lambda: cluster.decisions() is not None, "a pass is finished")
    assert cluster.troubles() == []

    cluster.supervisor.remove("controller")
    cluster.supervisor.add("controller", "controller", ["--config", "/none.yaml"])

    eventually(lambda: cluster.supervisor.children["controller"].restarts > 1, "it has tried twice")
    (trouble,) = cluster.troubles()
    assert trouble.startswith("controller ended by itself ")
    assert "/none.yaml" in trouble

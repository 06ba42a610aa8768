"""The manifests of the pages: an API server takes them, gpuplan serves them, and the chart takes the values."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.__main__ import main
from cli.manifest_schemas import SCHEMAS
from crds.v1alpha1.names import API_VERSION, KIND, LABEL_PARTITIONING, PLURAL
from deploy.generate.crd import definition
from kube import apply, clients
from partitioning.resources import classify
from tests.apiserver import ApiServer
from tests.builders import objects
from tests.docs.pages import ROOT, manifests

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATHS = {
    (API_VERSION, KIND): f"/apis/{API_VERSION}/{PLURAL}",
    ("v1", "Pod"): "/api/v1/namespaces/{namespace}/pods",
    ("v1", "Node"): "/api/v1/nodes",
    ("v1", "Namespace"): "/api/v1/namespaces",
    ("v1", "ConfigMap"): "/api/v1/namespaces/{namespace}/configmaps",
}
RBAC = ("rbac.authorization.k8s.io/v1", "ClusterRole")  # no API server of the sandbox has RBAC
VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
BLOCKS = [
    pytest.param(page, document, id=f"{page}-{number}")
    for number, (page, text) in enumerate(manifests())
    for document in yaml.safe_load_all(text)
]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        apply.create(clients.for_url(started.url), CRDS, definition())
        yield started


@pytest.mark.parametrize(("page", "body"), BLOCKS)
def test_a_manifest_is_taken(page: str, body: dict[str, Any], server: ApiServer) -> None:
    kind = (body.get("apiVersion", ""), body.get("kind", ""))
    if kind in PATHS:
        _create(server, kind, body)
    elif kind == RBAC:
        assert {verb for rule in body["rules"] for verb in rule["verbs"]} <= VERBS
    elif not any(kind):  # values of the chart
        jsonschema.validate(body, json.loads((ROOT / "deploy/chart/values.schema.json").read_text()))
    else:
        pytest.fail(f"{page}: nothing here judges {kind}; add it to PATHS, or fence it with another language")


def _create(server: ApiServer, kind: tuple[str, str], body: dict[str, Any]) -> None:
    """And delete it, since pages use the same names. A server ignores the status of what is created, we do not."""
    if kind in SCHEMAS:
        jsonschema.validate(body, SCHEMAS[kind])
    api = clients.for_url(server.url)
    path = PATHS[kind].format(namespace="default")
    metadata = {key: value for key, value in body["metadata"].items() if key != "namespace"}
    apply.create(api, path, body | {"metadata": metadata})
    apply.delete(api, f"{path}/{metadata['name']}")


@pytest.mark.parametrize(("page", "body"), [block for block in BLOCKS if block.values[1].get("kind") == "Pod"])  # type: ignore[union-attr]
def test_a_pod_requests_what_gpuplan_serves(page: str, body: dict[str, Any]) -> None:
    limits = [name for one in body["spec"]["containers"] for name in one.get("resources", {}).get("limits", {})]
    assert any(classify(name) for name in limits)
    assert [name for name in limits if name.startswith("nvidia.com/") and classify(name) is None] == []


NODES = {
    "docs/mig.md": ("mig", "NVIDIA-H100-80GB-HBM3", "81559"),
    "docs/mps.md": ("mps", "NVIDIA-L40S", "46068"),
}


def node(name: str, page: str) -> dict[str, Any]:
    kind, product, memory = NODES[page]
    labels = {
        LABEL_PARTITIONING: kind,
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": memory,
    }
    return objects.node(name, labels=labels)


@pytest.mark.parametrize("page", NODES)
def test_the_pods_of_a_guide_are_placed(page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a node of the kind that the guide is about; nothing that it pins is in their way."""
    shown = [block.values[1] for block in BLOCKS if block.values[0] == page]
    pods = [body for body in shown if isinstance(body, dict) and body.get("kind") == "Pod"]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([node("gpu-node-1", page), *pods]))

    assert pods
    assert main(["plan", "-f", str(file), "--exit-code"]) == 0, capsys.readouterr().out

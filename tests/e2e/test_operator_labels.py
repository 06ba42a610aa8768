"""operatorLabels: manage on a real control plane: what the chart's policies let the controller write, and that it does.

The policies of this value replace those of the default one, and are replaced by them again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN, MIG_MANAGER, MONITORS
from crds.v1alpha1.names import ANNOTATION_OPERATOR_LABELS, LABEL_NODE_AGENT, LABEL_PARTITIONING
from kube import apply
from kube.patches import metadata_patch
from tests.e2e.chart_rendering import Json, Rendered
from tests.e2e.real_cluster import JSON_PATCH, MERGE, NODES, Answer, RealCluster, call
from tests.e2e.test_controller_policy import NAME, controller
from tests.waiting import eventually

__all__ = ["controller"]  # a fixture

DCGM, VALIDATOR = MONITORS[0], "nvidia.com/gpu.deploy.operator-validator"
PATH = f"{NODES}/{NAME}"
OFF = {DEVICE_PLUGIN: "false", MIG_MANAGER: "false"}
RECORD = {ANNOTATION_OPERATOR_LABELS: json.dumps({DEVICE_PLUGIN: "true", MIG_MANAGER: None})}


def metadata(api: ApiClient, **fields: Json) -> Answer:
    return call(api, "PATCH", PATH, {"metadata": fields}, MERGE, dryRun="All")


def put_policies(cluster: RealCluster, helm: Path, folder: Path, values: str) -> None:
    """The controller's policies as the chart has them with these values."""
    found = Rendered(helm, folder, values).all("ValidatingAdmissionPolicy")
    ours = [body for body in found if body["metadata"]["name"].startswith("gpuplan-controller")]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": ours})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", check=True, stdin=text)


@pytest.fixture
def managed(cluster: RealCluster, controller: ApiClient, helm: Path, tmp_path: Path) -> Iterator[ApiClient]:
    """The controller, once the policies of `manage` are in force."""
    put_policies(cluster, helm, tmp_path, "operatorLabels: manage")
    eventually(lambda: metadata(controller, labels=OFF).allowed, "the policies are in force")
    yield controller
    put_policies(cluster, helm, tmp_path, "")
    eventually(lambda: not metadata(controller, labels=OFF).allowed, "the default policies are in force again")


def test_by_default_it_may_write_its_own_label_only(controller: ApiClient) -> None:
    assert metadata(controller, labels={LABEL_NODE_AGENT: "true"}).allowed
    for labels in (OFF, {LABEL_PARTITIONING: "mps"}, {"kubernetes.io/os": "x"}):
        assert "gpuplan.dev/node-agent only" in metadata(controller, labels=labels).message
    assert "annotations" in metadata(controller, annotations=RECORD).message


def test_by_default_it_may_put_back_what_manage_had_set(cluster: RealCluster, controller: ApiClient) -> None:
    on = {DEVICE_PLUGIN: "true", DCGM: "true"}
    apply.merge_patch(cluster.admin, PATH, {"metadata": {"labels": on, "annotations": {"a": "b"}}})
    assert "only" in metadata(controller, labels={DCGM: "x"}).message, "there is no record of ours"

    off = dict.fromkeys(on, "false")
    apply.merge_patch(cluster.admin, PATH, {"metadata": {"labels": off, "annotations": RECORD}})
    back: dict[str, Any] = {
        "labels": {DCGM: "true", DEVICE_PLUGIN: None},
        "annotations": {ANNOTATION_OPERATOR_LABELS: "{}"},
    }
    assert metadata(controller, **back).allowed
    assert metadata(controller, annotations={ANNOTATION_OPERATOR_LABELS: None}).allowed
    others: tuple[dict[str, Any], ...] = (
        {"annotations": {"a": "c"}},
        {"labels": {VALIDATOR: "false"}},
        {"labels": {MIG_MANAGER: "true"}},
    )
    for fields in others:
        assert "only" in metadata(controller, **fields).message, fields
    apply.merge_patch(cluster.admin, PATH, {"metadata": {"labels": on}})
    assert "only" in metadata(controller, labels=off).message, "it takes nothing off the node"

    gone = {"labels": dict.fromkeys(on), "annotations": {ANNOTATION_OPERATOR_LABELS: None, "a": None}}
    apply.merge_patch(cluster.admin, PATH, {"metadata": gone})


def test_with_manage_it_may_write_the_operators_two_labels(cluster: RealCluster, managed: ApiClient) -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"labels": {VALIDATOR: "false"}},
        {"labels": {**OFF, LABEL_PARTITIONING: "mps"}},
        {"annotations": {**RECORD, "a": "b"}},
    )
    for fields in refused:
        answer = metadata(managed, **fields)
        assert answer.status == 403, fields
        assert "only" in answer.message

    raw = apply.get(cluster.admin, PATH)
    patch = metadata_patch(raw, labels={**OFF, LABEL_NODE_AGENT: "true"}, annotations=RECORD)
    assert call(managed, "PATCH", PATH, patch, JSON_PATCH).allowed
    stale = call(managed, "PATCH", PATH, patch, JSON_PATCH)
    assert not stale.allowed, "the Node has changed since it was read"

    raw = apply.get(cluster.admin, PATH)
    assert raw["metadata"]["labels"].items() >= {**OFF, LABEL_NODE_AGENT: "true"}.items()
    back = {DEVICE_PLUGIN: "true", MIG_MANAGER: None, LABEL_NODE_AGENT: None}
    patch = metadata_patch(raw, labels=back, annotations={ANNOTATION_OPERATOR_LABELS: None})
    assert call(managed, "PATCH", PATH, patch, JSON_PATCH).allowed
    found = apply.get(cluster.admin, PATH)["metadata"]
    assert found["labels"][DEVICE_PLUGIN] == "true"
    assert not {MIG_MANAGER, LABEL_NODE_AGENT} & found["labels"].keys()
    apply.merge_patch(cluster.admin, PATH, {"metadata": {"labels": {DEVICE_PLUGIN: None}}})

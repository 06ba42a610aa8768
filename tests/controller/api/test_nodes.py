"""Nodes from raw JSON: amounts, and the labels that enable a node."""

import pytest

from controller.api.nodes import read_node, replicas
from controller.model.scheduling import Taint
from controller.model.views import NodeView
from crds.v1alpha1.enablement import Enablement, enablement
from tests.builders import objects
from tests.builders.objects import SLICE


def test_a_node() -> None:
    raw = {
        "metadata": {
            "name": "n1",
            "uid": "nu",
            "labels": {
                "gpuplan.dev/gpu-partitioning": "mig",
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
                "nvidia.com/gpu.count": "8",
            },
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"cpu": "63500m", "memory": "1Ki", "pods": "110", SLICE: "3"},
            "conditions": [{"type": "Ready", "status": "Unknown"}],
        },
    }
    node = read_node(raw)
    assert isinstance(node, NodeView)
    assert node.allocatable == {"cpu": 63500, "memory": 1024, "pods": 110, SLICE: 3}
    assert (node.partitioning, node.gpu_count) == ("mig", 8)
    assert node.taints == (Taint(key="k", effect="NoExecute"),)
    assert node.unschedulable
    assert not node.ready


@pytest.mark.parametrize(
    ("label", "count", "remark"),
    [
        ("4", 4, ""),
        ("0", 0, ""),
        (None, None, ""),
        ("1", None, "use 2 to 60"),
        ("61", None, "0 for none"),
        ("x", None, "=x"),
    ],
)
def test_replicas_of_a_node(label: str | None, count: int | None, remark: str) -> None:
    found, problem = replicas({} if label is None else {"gpuplan.dev/mps-replicas": label})
    assert found == count
    assert remark in problem
    assert bool(problem) is bool(remark)


@pytest.mark.parametrize(
    ("labels", "by_gib"),
    [
        ({"ack.node.gpu.schedule": "mps"}, True),
        ({"ack.node.gpu.schedule": "mig"}, False),
        ({"ack.node.gpu.schedule": "mps", "gpuplan.dev/gpu-partitioning": "mps"}, False),
        ({"ack.node.gpu.schedule": "mps", "nos.nebuly.com/gpu-partitioning": "mps"}, False),
        ({}, False),
    ],
)
def test_acks_label_alone_means_gib(labels: dict[str, str], by_gib: bool) -> None:
    node = read_node(objects.node(labels=labels))
    assert isinstance(node, NodeView)
    assert node.shared_by_gib is by_gib


@pytest.mark.parametrize(("label", "count"), [("many", 0), ("8", 8), ("9" * 63, 16)])
def test_a_count_is_a_number_of_gpus_that_a_plan_can_have(label: str, count: int) -> None:
    node = read_node(objects.node(labels={"nvidia.com/gpu.count": label}))
    assert isinstance(node, NodeView)
    assert node.gpu_count == count


OURS, NOS, ALT, ACK = (
    "gpuplan.dev/gpu-partitioning",
    "nos.nebuly.com/gpu-partitioning",
    "nos.nebuly.ai/gpu-partitioning",
    "ack.node.gpu.schedule",
)


@pytest.mark.parametrize(
    ("labels", "mode", "remark"),
    [
        ({}, None, ""),
        ({OURS: "auto"}, "auto", ""),
        ({NOS: "mps"}, "mps", ""),
        ({ALT: "mig"}, "mig", ""),
        ({ACK: "mps"}, "mps", ""),
        ({ACK: "cgpu"}, None, ""),
        ({OURS: "mig", NOS: "mps"}, "mig", "is followed, not nos.nebuly.com/gpu-partitioning=mps"),
        ({OURS: "mig", NOS: "mig"}, "mig", ""),
        ({NOS: "mig", ACK: "mps"}, None, "disagree"),
        ({OURS: "MIG"}, None, "use one of mig, mps, auto"),
    ],
)
def test_which_labels_enable_a_node(labels: dict[str, str], mode: str | None, remark: str) -> None:
    found = enablement(labels)
    assert found == Enablement(mode=mode, warning=found.warning)
    assert remark in found.warning
    assert bool(remark) == bool(found.warning)

"""Hardware read from a node's labels: what counts, and how a wrong label is reported."""

import re
from typing import Any

import pytest

from cli.hardware import ANNOTATION_INSTANCES, Gpu, gpus_of
from tests.builders import objects


def node(annotation: str | None = None, **labels: str) -> dict[str, Any]:
    names = {"product": "nvidia.com/gpu.product", "count": "nvidia.com/gpu.count", "memory": "nvidia.com/gpu.memory"}
    found = {names.get(key, f"gpuplan.dev/{key.replace('_', '-')}"): value for key, value in labels.items()}
    annotations = {ANNOTATION_INSTANCES: annotation} if annotation is not None else {}
    return objects.node("n", labels=found, metadata={"annotations": annotations})


def gpus(manifest: dict[str, Any]) -> tuple[Gpu, ...]:
    found = gpus_of(manifest)
    assert not isinstance(found, str), found
    return found


def test_a_node_without_a_product_has_no_gpu() -> None:
    assert gpus(node(gpu_partitioning="mig")) == ()


@pytest.mark.parametrize("suffix", ["", "-SHARED", "-MIG-1g.5gb"])
def test_the_suffix_of_a_cut_product_is_stripped(suffix: str) -> None:
    (gpu,) = gpus(node(product=f"NVIDIA-A100-SXM4-40GB{suffix}"))

    assert gpu.model.key == "A100-40GB"
    assert gpu.name == "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(("label", "enabled"), [("mig", True), ("mps", False), ("auto", False)])
def test_nodes_labelled_for_mig_start_with_mig_mode_on(label: str, enabled: bool) -> None:
    found = gpus(node(product="NVIDIA-H100-80GB-HBM3", count="2", gpu_partitioning=label))

    assert [gpu.mig_enabled for gpu in found] == [enabled, enabled]
    assert all(not gpu.layout for gpu in found)


def test_the_annotation_gives_hardware_that_is_already_cut() -> None:
    found = gpus(node("0=3g.20gb@4, 1g.5gb@0; 2=", product="NVIDIA-A100-SXM4-40GB", count="3"))

    assert [(i.profile, i.start, i.size) for i in found[0].layout] == [("1g.5gb", 0, 1), ("3g.20gb", 4, 4)]
    assert [gpu.mig_enabled for gpu in found] == [True, False, True]


@pytest.mark.parametrize(
    ("manifest", "field", "words"),
    [
        pytest.param(node(product="NVIDIA-Z9"), "gpu.product", "the sandbox knows: .*H100", id="product"),
        pytest.param(
            node(product="NVIDIA-RTX-PRO-5000-Blackwell", gpu_partitioning="mig"),
            "gpu.product",
            "no placements",
            id="unpublished",
        ),
        pytest.param(node(product="NVIDIA-A30", count="two"), "gpu.count", "number of GPUs from 1 to 16", id="count"),
        pytest.param(node(product="NVIDIA-A30", count="17"), "gpu.count", "from 1 to 16", id="too-many"),
        pytest.param(node(product="NVIDIA-A30", memory="24GB"), "gpu.memory", "in MiB, such as 24258", id="memory"),
        pytest.param(node("0=9g.1gb@0", product="NVIDIA-A30"), ANNOTATION_INSTANCES, "1g.6gb", id="profile"),
        pytest.param(node("0=1g.6gb", product="NVIDIA-A30"), ANNOTATION_INSTANCES, "1g.6gb@0", id="no-start"),
        pytest.param(node("1=1g.6gb@0", product="NVIDIA-A30"), ANNOTATION_INSTANCES, "index from 0 to 0", id="index"),
        pytest.param(
            node("0=2g.12gb@0,1g.6gb@1", product="NVIDIA-A30"), ANNOTATION_INSTANCES, "GPU 0: .*1g.6gb", id="overlap"
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_remedy(manifest: dict[str, Any], field: str, words: str) -> None:
    problem = gpus_of(manifest)

    assert isinstance(problem, str)
    named, _, message = problem.partition(": ")
    assert field in named
    assert re.search(words, message), message

"""How a node is labelled once it is cut."""

import pytest

from controller.simulator import expected_after
from controller.simulator.relabel import labels_after
from tests.controller.planner.builders import node

PRODUCT, STRATEGY, CAPABLE = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy", "nvidia.com/mps.capable"
PLAIN = {PRODUCT: "NVIDIA-A100-SXM4-40GB", "zone": "a"}
SHARED = {PRODUCT: "NVIDIA-A100-SXM4-40GB-SHARED", STRATEGY: "mps", CAPABLE: "true", "zone": "a"}


@pytest.mark.parametrize(
    ("labels", "mps", "after"),
    [
        (PLAIN, True, SHARED),
        (PLAIN, False, PLAIN),
        (SHARED, True, SHARED),
        (SHARED, False, PLAIN | {STRATEGY: "none", CAPABLE: "false"}),
        ({}, False, {}),
        ({"zone": "a"}, True, {"zone": "a", STRATEGY: "mps", CAPABLE: "true"}),
    ],
)
def test_labels_after_the_cut(labels: dict[str, str], mps: bool, after: dict[str, str]) -> None:
    assert labels_after(labels, mps=mps) == after


@pytest.mark.parametrize(
    ("relabels", "mps", "products"),
    [
        (True, True, [SHARED[PRODUCT]]),
        (False, True, [PLAIN[PRODUCT], SHARED[PRODUCT]]),
        (True, False, [PLAIN[PRODUCT]]),
        (False, False, [PLAIN[PRODUCT]]),
    ],
)
def test_the_device_plugin_decides_who_is_told(relabels: bool, mps: bool, products: list[str]) -> None:
    found = expected_after(node(labels=PLAIN), mps=mps, relabels=relabels)

    assert [one.labels[PRODUCT] for one in found] == products
    assert all(one.name == "node-1" for one in found)

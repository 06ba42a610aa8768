"""How a node is labelled once it is cut."""

import pytest

from controller.planner.inventory.node_groups import NodeGroups
from controller.simulator.relabel import expected_after, labels_after
from tests.builders.objects import Json, plan
from tests.builders.views import plan_reading
from tests.controller.planner.builders import node
from tests.controller.simulator.words import REQUIRED, a_pod

PRODUCT, STRATEGY, CAPABLE = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy", "nvidia.com/mps.capable"
PLAIN = {PRODUCT: "NVIDIA-A100-SXM4-40GB", "zone": "a"}
SHARED = {PRODUCT: "NVIDIA-A100-SXM4-40GB-SHARED", STRATEGY: "mps", CAPABLE: "true", "zone": "a"}
SLICE = "nvidia.com/gpu-10gb"
MIG, MPS = {"nvidia.com/mig-1g.5gb": "1"}, {SLICE: "1"}


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
def test_the_device_plugin_decides_which_node_is_relabelled(relabels: bool, mps: bool, products: list[str]) -> None:
    found = expected_after(node(labels=PLAIN), mps=mps, relabels=relabels)

    assert [one.labels[PRODUCT] for one in found] == products
    assert all(one.name == "node-1" for one in found)


NVIDIA = {"devicePlugin": {"backend": "nvidia"}}


@pytest.mark.parametrize(
    ("spec", "status", "relabels"),
    [
        ({}, {}, False),
        ({"devicePlugin": {"backend": "nvidia", "renameByDefault": False}}, {}, True),
        ({"devicePlugin": {"backend": "gpuplan", "renameByDefault": False}}, NVIDIA, False),
        ({"devicePlugin": {"renameByDefault": False}}, NVIDIA, True),
        ({"devicePlugin": {"backend": "nvidia"}}, {}, False),
        ({}, NVIDIA, False),
    ],
)
def test_the_plan_shows_which_plugin_it_is(spec: Json, status: Json, relabels: bool) -> None:
    assert plan_reading(plan(spec=spec, status=status)).relabels is relabels


IN, NOT_IN = "In", "NotIn"


@pytest.mark.parametrize(
    ("limits", "now", "selector", "relabelled", "kept"),
    [
        # MIG -> MPS: a device plugin that relabels adds -SHARED; with ours the label may have it or not.
        (MPS, PLAIN, (IN, PLAIN), False, True),
        (MPS, PLAIN, (IN, SHARED), True, True),
        (MPS, PLAIN, (NOT_IN, PLAIN), True, True),
        (MPS, PLAIN, (NOT_IN, SHARED), False, True),
        # MPS -> MIG: it is removed.
        (MIG, SHARED, (IN, PLAIN), True, True),
        (MIG, SHARED, (IN, SHARED), False, True),
        (MIG, SHARED, (NOT_IN, PLAIN), False, True),
        (MIG, SHARED, (NOT_IN, SHARED), True, True),
        # What is cut already as the pod needs it stays as it is labelled.
        (MPS, SHARED, (IN, PLAIN), False, False),
        (MPS, SHARED, (IN, SHARED), True, True),
        (MPS, SHARED, (NOT_IN, SHARED), False, False),
        (MIG, PLAIN, (IN, PLAIN), True, True),
        (MIG, PLAIN, (IN, SHARED), False, False),
        (MIG, PLAIN, (NOT_IN, PLAIN), False, False),
    ],
)
def test_selectors_are_tried_against_the_labels_after_the_cut(
    limits: Json, now: Json, selector: tuple[str, Json], relabelled: bool, kept: bool
) -> None:
    operator, wanted = selector
    expression = {"key": PRODUCT, "operator": operator, "values": [wanted[PRODUCT]]}
    required = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    pod = a_pod("p", spec={"containers": containers, "affinity": {"nodeAffinity": required}})

    there = node(labels=now)
    assert (NodeGroups([there], [pod], relabelled={there.name}).why_not(pod, there) is None) == relabelled
    assert (NodeGroups([there], [pod]).why_not(pod, there) is None) == kept

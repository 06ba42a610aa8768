"""Predicts the labels that a node will have after a change, so that selectors are tried against those.

Takes a node and whether it will share GPUs by MPS, and returns its labels then. NVIDIA's GPU feature discovery
follows the configuration of NVIDIA's device plugin: `gpu.product` gains -SHARED while the node
shares. Our own plugin does not configure it. All other labels stay.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from controller.model.views import NodeView

PRODUCT: Final = "nvidia.com/gpu.product"
STRATEGY: Final = "nvidia.com/gpu.sharing-strategy"
MPS_CAPABLE: Final = "nvidia.com/mps.capable"
RELABELLED: Final = frozenset({PRODUCT, STRATEGY, MPS_CAPABLE})
SHARED_SUFFIX: Final = "-SHARED"


def labels_after(labels: Mapping[str, str], *, mps: bool) -> dict[str, str]:
    """What feature discovery makes of a node that shares by MPS, or does not."""
    after = dict(labels)
    product = after.get(PRODUCT, "").removesuffix(SHARED_SUFFIX)
    if product:
        after[PRODUCT] = product + SHARED_SUFFIX if mps else product
    if mps or STRATEGY in after:
        after[STRATEGY] = "mps" if mps else "none"
    if mps or MPS_CAPABLE in after:
        after[MPS_CAPABLE] = "true" if mps else "false"
    return after


def expected_after(node: NodeView, *, mps: bool, relabels: bool) -> tuple[NodeView, ...]:
    """The node as it may be after the change; a pod may go there that matches any of these.

    Where the plugin `relabels` there is one; with ours the labels stay, unless the cluster's owner sees to it that they
    show the sharing: either is possible.
    """
    if not (mps or _may_share(node.labels)):
        return (node,)
    relabelled = replace(node, labels=labels_after(node.labels, mps=mps))
    if relabelled.labels == node.labels:
        return (node,)
    return (relabelled,) if relabels else (node, relabelled)


def _may_share(labels: Mapping[str, str]) -> bool:
    return labels.get(PRODUCT, "").endswith(SHARED_SUFFIX) or STRATEGY in labels or MPS_CAPABLE in labels

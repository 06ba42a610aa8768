"""Reads from a plan how NVIDIA's device plugin is to serve its node (`devicePlugin.backend: nvidia`).

Takes a spec, returns the one config for all of its GPUs, or the field that the plugin cannot do, with the remedy: it
has one sharing entry per node, and cannot withdraw a single device. Controller and agent both ask here, so that both
find the same config. Whether the GPUs of the node can do it, the agent judges. Pure.
"""

from crds.v1alpha1.plan import effective_items
from crds.v1alpha1.spec import GpuItem, PlanSpec
from partitioning.nvidia_plugin import NodeConfig

REMEDY = "correct it, or use devicePlugin.backend gpuplan, which serves each GPU by itself"


def node_config(spec: PlanSpec) -> NodeConfig | str | None:
    """A text says why NVIDIA's plugin cannot do what the plan has: field, reason and remedy. None where the plan lists
    no GPU: nothing is to be changed."""
    items = effective_items(spec)
    first: NodeConfig | None = None
    for index, item in sorted(items.items()):
        found = _of_item(item, renames=spec.renames_replicas)
        if isinstance(found, str):
            return _refused(
                f"GPU {index}: {found}", "NVIDIA's device plugin serves whole GPUs or equal MPS replicas only"
            )
        if first is not None and found != first:
            others = (
                f"it differs from that of GPU {min(items)}, and NVIDIA's device plugin serves all GPUs of a node alike"
            )
            return _refused(f"GPU {index}: {'mps' if item.mps else 'whole'}", others)
        first = found
    return first


def _of_item(item: GpuItem, *, renames: bool) -> NodeConfig | str:
    """A text names the field that has no equal."""
    if item.whole is not None:
        return NodeConfig()
    if item.mps is None:
        return "mig.instances"
    if item.mps.replicas is None:
        return "mps.slices"
    return NodeConfig(
        replicas=item.mps.replicas,
        renamed=item.mps.renamed(otherwise=renames),
        mergeable=item.mps.fail_requests_greater_than_one is False,
    )


def _refused(field: str, why: str) -> str:
    return f"{field}: {why}: {REMEDY}"

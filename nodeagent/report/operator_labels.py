"""Reports the labels by which NVIDIA's GPU Operator would run its device plugin or mig-manager alongside gpuplan.

Takes the node's reading, returns the sentence of the condition OperatorLabels and of an Event. Writes no label.
"""

from crds.v1alpha1 import gpu_operator
from nodeagent.observed.node import ObservedNode


def missing(node: ObservedNode | None, *, disabled: bool) -> str:
    """What is wrong and the command that helps; empty where nothing is, or the node is on its way out of gpuplan."""
    if node is None or disabled or not node.operator_parts:
        return ""
    parts = " and ".join(key.removeprefix(gpu_operator.PREFIX) for key in node.operator_parts)
    verb = "gives out or partitions" if len(node.operator_parts) == 1 else "give out and partition"
    command = gpu_operator.switch_off(node.name, node.operator_parts)
    return f"The GPU Operator runs its {parts} on this node, which {verb} the same GPUs: {command}"

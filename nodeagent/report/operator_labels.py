"""Reports the labels by which NVIDIA's GPU Operator would run its device plugin or mig-manager alongside gpuplan.

Takes the node's reading, returns the condition OperatorLabels, and its sentence for an Event. Writes no label.
"""

from crds.v1alpha1 import gpu_operator
from crds.v1alpha1.names import Reason
from nodeagent.observed.node import ObservedNode


def missing(node: ObservedNode | None, *, disabled: bool) -> str:
    """What is wrong and the command that helps; empty where nothing is, or the node is on its way out of gpuplan."""
    if node is None or disabled or not node.operator_parts:
        return ""
    parts = " and ".join(key.removeprefix(gpu_operator.PREFIX) for key in node.operator_parts)
    verb = "gives out or partitions" if len(node.operator_parts) == 1 else "give out and partition"
    command = gpu_operator.switch_off(node.name, node.operator_parts)
    return f"The GPU Operator runs its {parts} on this node, which {verb} the same GPUs: {command}"


def operator_labels(node: ObservedNode | None, *, disabled: bool) -> tuple[bool, Reason, str]:
    """Status, reason and message of the condition."""
    if message := missing(node, disabled=disabled):
        return False, Reason.OPERATOR_LABELS_MISSING, message
    if node is None or not node.operator:
        return True, Reason.NO_OPERATOR, "The node has no labels of the GPU Operator."
    if disabled:
        return True, Reason.NODE_DISABLED, "The node is not enabled: the GPU Operator may run every part of it here."
    return True, Reason.CONFIRMED, "The GPU Operator runs neither its device plugin nor its mig-manager on this node."

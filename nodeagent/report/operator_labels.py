"""Reports the labels by which NVIDIA's GPU Operator would run its device plugin or mig-manager alongside gpuplan.

Takes the node's reading, returns the condition OperatorLabels, and once the sentence for an Event where a label has
been missing for some seconds: with `operatorLabels: manage` the controller sets it meanwhile. Writes no label.
"""

from collections.abc import Callable

from crds.v1alpha1 import gpu_operator
from crds.v1alpha1.names import Reason
from nodeagent.ages import Ages
from nodeagent.observed.node import ObservedNode

PATIENCE_SECONDS = 10.0


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


class MissingLabels:
    """Call `to_report` once a pass."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._ages = Ages(clock)
        self._reported = ""

    def to_report(self, node: ObservedNode | None, *, disabled: bool) -> str:
        """What is to be reported now; empty where nothing is missing, or that was reported already."""
        message = missing(node, disabled=disabled)
        young = bool(message) and self._ages.seconds(message) < PATIENCE_SECONDS
        self._ages.end_pass()
        if young or message == self._reported:
            return ""
        self._reported = message
        return message

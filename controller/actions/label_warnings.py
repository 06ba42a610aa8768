"""Warns about labels of nodes that cannot be understood, or contradict each other.

Takes the names of nodes that changed from the state, and writes a log line and an Event of the Node where what is wrong
with its labels is new, or with the annotation by which the GPU Operator's are put back. Never decides whether a node is
enabled: `crds.v1alpha1.enablement` does.
"""

import json
import logging
from collections.abc import Callable

from controller.actions.node_labels import values_before
from controller.actions.pod_events import Recorder
from controller.api.nodes import replicas
from controller.cache.delaying_queue import DelayingQueue
from controller.cache.state import State
from controller.model.views import NodeView
from crds.v1alpha1 import gpu_operator
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.names import ANNOTATION_OPERATOR_LABELS, CLOSED, LABEL_DRIVER, EventReason
from kube.change_log import ChangeLog
from kube.events import ObjectReference

log = logging.getLogger(__name__)


class LabelWarnings:
    """Run often: a node that did not change costs nothing."""

    def __init__(self, recorder: Recorder, state: State, *, clock: Callable[[], float]) -> None:
        self._recorder, self._state = recorder, state
        self._log = ChangeLog(log)
        self._delaying = DelayingQueue(clock=clock, every=state.cluster.names)
        state.listen(self._delaying.touch)

    def run(self) -> None:
        for name in self._delaying.take():
            node = self._state.cluster.node(name)
            problem = self._problem(node) if node is not None else ""
            news = self._log.warn(f"node {name}: {problem}" if problem else "", about=name)
            if node is not None and news:
                about = ObjectReference(api_version="v1", kind="Node", name=name, uid=node.uid)
                self._recorder.emit(about, "Warning", EventReason.PARTITIONING_LABELS, problem)

    def _problem(self, node: NodeView) -> str:
        record = record_problem(node)
        given, driver = node.labels.get(LABEL_DRIVER, CLOSED), ""
        if given != CLOSED:
            driver = f"label {LABEL_DRIVER}={given} is not understood: use {CLOSED}, or remove it"
        return "; ".join(filter(None, (enablement(node.labels).warning, replicas(node.labels)[1], driver, record)))


def record_problem(node: NodeView) -> str:
    """Why the GPU Operator's labels of this node are not managed, with the command; empty where they are."""
    if node.operator_record is None or values_before(node.operator_record) is not None:
        return ""
    # Where the labels are off, only the record can say what they were.
    managed = (*gpu_operator.RIVALS, *gpu_operator.MONITORS)
    before = {key: gpu_operator.ON for key in managed if node.labels.get(key) == gpu_operator.OFF}
    remedy, value = "write what they were", f" --overwrite {ANNOTATION_OPERATOR_LABELS}='{json.dumps(before)}'"
    if not before:
        remedy, value = "remove it", f" {ANNOTATION_OPERATOR_LABELS}-"
    return (
        f"annotation {ANNOTATION_OPERATOR_LABELS} is not as the controller writes it, so that the labels of the GPU "
        f"Operator are neither set nor restored: {remedy}: kubectl annotate node {node.name}{value}"
    )

"""Keeps agent and device plugin on a node until it may be handed back, and the GPU Operator's rival parts off it.

Takes Nodes and plans from the state and writes labels of Nodes, each node's in one JSON patch that tests its
resourceVersion. An enabled node gets the label gpuplan.dev/node-agent, which our DaemonSets select too; it is removed
when the node is not enabled any more and its agent has reported that no pod holds a device. With `operatorLabels:
manage` the operator's labels of its device plugin and mig-manager are switched off and restored with it, and an
annotation keeps what was there. They are written once when the node is enabled, and once when the operator returns:
later edits by others are respected. While an agent reports that a partition is held open by a program that the driver
does not list, DCGM and its exporter are off, too, and in the annotation; longer where the driver is closed by then.
What the annotation keeps is put back whatever the setting is by then. Must never touch a node without the operator's
labels, nor any other label.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kubernetes.client import ApiClient

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.actions.work_queue import RESEND_SECONDS, WorkItem, WorkQueue
from controller.api.reading import Unreadable
from crds.v1alpha1 import gpu_operator, names, paths
from crds.v1alpha1.enablement import enablement
from crds.v1alpha1.names import ANNOTATION_OPERATOR_LABELS, CONTROLLER_MANAGER, LABEL_NODE_AGENT, GpuState, Reason
from kube import apply, errors
from kube.patches import metadata_patch

log = logging.getLogger(__name__)

HERE, WAITS = "true", GpuState.WAITING_FOR_RELEASE
Labels = Mapping[str, str]
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Of one Node; None removes a key."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


def changes(labels: Labels, record: str | None, *, manage: bool, released: bool, held_open: bool = False) -> Changes:
    """What is to be written on a Node with these labels, and this annotation of ours (None: it has none).

    `released`: its agent has reported that no pod holds a device and that none can get one. `held_open`: that it waits
    for a program that has a partition open.
    """
    found = enablement(labels)
    if found.mode is not None:
        return _enabled(labels, record, manage=manage, held_open=held_open)
    # Another value keeps no agent there, and so none that could release the node.
    stays = labels.get(LABEL_NODE_AGENT) == HERE and not released
    # Labels that are not understood, or disagree, are no request: everything stays as it is.
    if stays or not found.ended:
        return _monitors(labels, record, held_open=False)
    return _handed_back(labels, record)


def _enabled(labels: Labels, record: str | None, *, manage: bool, held_open: bool) -> Changes:
    ours: dict[str, str | None] = {} if labels.get(LABEL_NODE_AGENT) == HERE else {LABEL_NODE_AGENT: HERE}
    runs = gpu_operator.runs(labels)
    if record is not None and not runs:
        # It took our values along, as when feature discovery fails for a while, and comes back with its own.
        return Changes(labels=ours, annotations={ANNOTATION_OPERATOR_LABELS: None})
    if record is not None:
        parked = _monitors(labels, record, held_open=manage and held_open)
        return Changes(labels={**ours, **parked.labels}, annotations=parked.annotations)
    if not manage or not runs or gpu_operator.at_work(labels):
        return Changes(labels=ours)
    # An absent one too: the operator adds it as soon as it finds the node capable of MIG.
    before = {key: labels.get(key) for key in gpu_operator.RIVALS if labels.get(key) != gpu_operator.OFF}
    off = dict.fromkeys(before, gpu_operator.OFF)
    return Changes(labels={**ours, **off}, annotations={ANNOTATION_OPERATOR_LABELS: json.dumps(before)})


def _monitors(labels: Labels, record: str | None, *, held_open: bool) -> Changes:
    """Take DCGM off, or put it back, in the one patch that also keeps or forgets what was there."""
    before = values_before(record) if record is not None else None
    if before is None:
        return Changes()
    parked = {key: before[key] for key in gpu_operator.MONITORS if key in before}
    others = {key: value for key, value in before.items() if key not in parked}
    # Who works on the driver waits for all programs that have it open.
    closed = labels.get(names.LABEL_DRIVER) == names.CLOSED or gpu_operator.driver_unloads(labels)
    if held_open == bool(parked) or (closed and not held_open):
        return Changes()
    if held_open:
        runs = {key: gpu_operator.ON for key in gpu_operator.MONITORS if labels.get(key) == gpu_operator.ON}
        kept = {**others, **runs}
        found: dict[str, str | None] = dict.fromkeys(runs, gpu_operator.OFF)
    else:
        kept, found = others, _still_off(labels, parked)
    return Changes(labels=found, annotations={ANNOTATION_OPERATOR_LABELS: json.dumps(kept)} if kept != before else {})


def _still_off(labels: Labels, before: Mapping[str, str | None]) -> dict[str, str | None]:
    """Another client has since changed the labels that are no longer off."""
    return {key: value for key, value in before.items() if labels.get(key) == gpu_operator.OFF}


def _handed_back(labels: Labels, record: str | None) -> Changes:
    ours: dict[str, str | None] = {LABEL_NODE_AGENT: None} if LABEL_NODE_AGENT in labels else {}
    before = values_before(record) if record is not None else None
    if before is None:
        return Changes(labels=ours)
    return Changes(labels={**ours, **_still_off(labels, before)}, annotations={ANNOTATION_OPERATOR_LABELS: None})


def values_before(record: str) -> Mapping[str, str | None] | None:
    """The annotation's content; None where it is not what the controller writes."""
    try:
        found = json.loads(record)
    except ValueError:
        return None
    if not isinstance(found, dict) or not found.keys() <= {*gpu_operator.RIVALS, *gpu_operator.MONITORS}:
        return None
    values = (value for value in found.values() if value is not None)
    valid = all(isinstance(value, str) and _LABEL_VALUE.fullmatch(value) for value in values)
    return found if valid else None


class NodeLabels:
    """Run often: what is in order costs nothing but a check."""

    def __init__(self, environment: Environment, *, manage_operator: bool) -> None:
        self._api, self._state = environment.api, environment.state
        self._manage = manage_operator
        self._queue = WorkQueue(environment, stage=ErrorStage.LABELS, resend_seconds=RESEND_SECONDS)

    def run(self) -> None:
        """Bring every Node's labels up to date; one failure stops no other."""
        self._queue.run(self.due_of)

    def due_of(self, name: str) -> Iterator[WorkItem]:
        """What is due about this Node."""
        node, reading = self._state.cluster.node(name), self._state.cluster.plan(name)
        if node is None:
            return
        released = reading is not None and reading.handed_back and reading.node_uid == node.uid
        manage, held_open = self._manages(name, node.labels), self._held_open(name)
        if changes(node.labels, node.operator_record, manage=manage, released=released, held_open=held_open):
            yield WorkItem(what=f"labels of node {name}", about=name, act=partial(self._write, name))

    def _write(self, name: str) -> None:
        # Read again, the plan after the Node: what it reports is about a node that was not enabled since.
        raw = apply.get(self._api, paths.node(name))
        labels, annotations = (raw["metadata"].get(part) or {} for part in ("labels", "annotations"))
        released = LABEL_NODE_AGENT in labels and enablement(labels).ended and self._released(raw)
        record, held_open = annotations.get(ANNOTATION_OPERATOR_LABELS), self._held_open(name)
        manage = self._manages(name, labels)
        due = changes(labels, record, manage=manage, released=released, held_open=held_open)
        operations = metadata_patch(raw, labels=due.labels, annotations=due.annotations)
        if not patch_node(self._api, name, operations):
            return
        texts = (f"{key}={value}" if value is not None else f"{key} removed" for key, value in due.labels.items())
        log.info("node %s: labels written: %s", name, ", ".join(texts) or "none")

    def _manages(self, name: str, labels: Labels) -> bool:
        """Not where NVIDIA's plugin is the backend of an enabled node, and a person decides about the operator's
        labels; or may be its backend, since the plan is not there."""
        reading = self._state.cluster.plan(name)
        return self._manage and not (enablement(labels).mode is not None and (reading is None or reading.by_nvidia))

    def _held_open(self, name: str) -> bool:
        """Not once the agent has given up, nor while it is silent: the node has its monitoring back then."""
        reading = self._state.cluster.plan(name)
        if reading is None or reading.alive is None or reading.alive.status != "True":
            return False
        return any((gpu.view.state, gpu.view.reason) == (WAITS, Reason.HELD_OPEN) for gpu in reading.gpus)

    def _released(self, node: Mapping[str, Any]) -> bool:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        try:
            reading = self._state.read_plan(apply.get(self._api, paths.plan(name)))
        except errors.NotFound:
            return False  # it returns, and the agent reports in the new one
        return not isinstance(reading, Unreadable) and reading.handed_back and reading.node_uid == uid


def patch_node(api: ApiClient, name: str, operations: list[dict[str, Any]]) -> bool:
    """Whether there was something to write, and no other client has just written the Node: the watch brings that."""
    if not operations:
        return False
    try:
        apply.json_patch(api, paths.node(name), operations, manager=CONTROLLER_MANAGER)
    except errors.ApiError as error:
        if not errors.is_stale(error):
            raise
        return False
    return True

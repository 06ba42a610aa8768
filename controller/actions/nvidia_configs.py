"""Writes the configs that plans with `devicePlugin.backend: nvidia` need, and names them in the labels of their Nodes.

Takes plans and Nodes from the state. A config gets a key of its own in the ConfigMap of NVIDIA's device plugin as soon
as a plan has it, for the kubelet needs minutes to project it; the label `nvidia.com/device-plugin.config` follows when
the agent requests that key in its status, which it does while no container holds a device. Must never move a label that
another client has set, touch a key that is not gpuplan's, nor remove one: config-manager fails permanently when the key
that a node uses is gone, and there are few of them.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.actions.node_labels import patch_node
from controller.actions.work_queue import RESEND_SECONDS, WorkItem, WorkQueue
from controller.api.plans import PlanReading
from controller.config.settings import NvidiaConfigMap
from controller.model.views import NodeView
from crds.v1alpha1 import paths
from crds.v1alpha1.names import CONTROLLER_MANAGER, TAINT_CHANGING
from kube import apply
from kube.patches import has_taint, metadata_patch
from partitioning.nvidia_plugin import CONFIG_LABEL, OWN_KEY, NodeConfig

log = logging.getLogger(__name__)
CHECK_SECONDS = 60.0
"""A key that another client removed is written again after this."""


class NvidiaConfigs:
    """Run often: what is in order costs nothing but a check."""

    def __init__(self, environment: Environment, config_map: NvidiaConfigMap) -> None:
        self._api, self._state, self._clock = environment.api, environment.state, environment.clock
        self._config_map = config_map
        self._queue = WorkQueue(environment, stage=ErrorStage.CONFIGS, resend_seconds=RESEND_SECONDS)
        self._written_at: dict[str, float] = {}
        """By key, when it was seen to be as it should be."""

    def run(self) -> None:
        """Bring keys and labels up to date; one failure stops no other."""
        if self._config_map.name:
            self._queue.run(self.due_of)

    def due_of(self, name: str) -> Iterator[WorkItem]:
        """What is due about this plan and its Node."""
        reading, node = self._state.cluster.plan(name), self._state.cluster.node(name)
        if reading is None or reading.deleting or reading.nvidia is None or node is None:
            return
        config, place = reading.nvidia, f"{self._config_map.namespace}/{self._config_map.name}"
        if self._queue.pause_ended(name, self._fresh_seconds(config.key)):
            yield WorkItem(what=f"key {config.key} of ConfigMap {place}", about=name, act=partial(self._write, config))
        elif _asks(reading, node) and self._state.cluster.agent_silent_for(name) is None:
            act = partial(self._move, name, config)
            yield WorkItem(what=f"label {CONFIG_LABEL} of node {name}", about=name, act=act)

    def _fresh_seconds(self, key: str) -> float:
        """For how long the key need not be read again."""
        at = self._written_at.get(key)
        return 0.0 if at is None else at + CHECK_SECONDS - self._clock()

    def _write(self, config: NodeConfig) -> None:
        path = paths.config_map(self._config_map.namespace, self._config_map.name)
        raw = apply.get(self._api, path)
        if (raw.get("data") or {}).get(config.key) != config.text:
            # Refused where another client has written since: its keys are never overwritten unread.
            body = {
                "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
                "data": {config.key: config.text},
            }
            apply.merge_patch(self._api, path, body, manager=CONTROLLER_MANAGER)
            log.info("key %s written to ConfigMap %s", config.key, path.partition("/namespaces/")[2])
        self._written_at[config.key] = self._clock()

    def _move(self, name: str, config: NodeConfig) -> None:
        # Read again, the plan after the Node: pods may have come since.
        raw = apply.get(self._api, paths.node(name))
        reading = self._state.read_plan(apply.get(self._api, paths.plan(name)))
        there = (raw["metadata"].get("labels") or {}).get(CONFIG_LABEL, "")
        asked = isinstance(reading, PlanReading) and reading.nvidia == config and reading.named_config == config.key
        if not asked or not _is_ours(there) or not has_taint(raw, TAINT_CHANGING):
            return
        operations: list[dict[str, Any]] = metadata_patch(raw, labels={CONFIG_LABEL: config.key}, annotations={})
        if not patch_node(self._api, name, operations):
            return
        log.info("node %s: label %s=%s, was %s", name, CONFIG_LABEL, config.key, there or "absent")


def _asks(reading: PlanReading, node: NodeView) -> bool:
    """Its agent has reported that the node may have the config of the plan."""
    key, there = reading.named_config, node.labels.get(CONFIG_LABEL, "")
    same = reading.nvidia is not None and key == reading.nvidia.key and reading.node_uid == node.uid
    return same and not reading.paused and key != there and _is_ours(there)


def _is_ours(value: str) -> bool:
    return not value or OWN_KEY.fullmatch(value) is not None

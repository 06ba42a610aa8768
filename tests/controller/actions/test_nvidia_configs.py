"""Configs of NVIDIA's device plugin: keys that the controller adds to its ConfigMap, and the labels that name them."""

from collections.abc import Mapping
from typing import Any

import pytest

from controller.actions.node_labels import NodeLabels
from controller.actions.nvidia_configs import NvidiaConfigs
from controller.config.settings import NvidiaConfigMap
from crds.v1alpha1 import paths
from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN
from crds.v1alpha1.names import CHANGING_TAINT, LABEL_NODE_AGENT, LABEL_PARTITIONING
from kube import apply
from partitioning.nvidia_plugin import CONFIG_LABEL, NodeConfig
from tests.builders.objects import config_map, gpu, node, partition, status
from tests.controller.cluster import Bench

FOUR = NodeConfig(replicas=4, renamed=True)
PLACE = NvidiaConfigMap(name="configs", namespace="default")
PATH = paths.config_map("default", "configs")
THEIRS = {"default": "version: v1\n", "gpuplan-notes": "theirs"}


class ConfigsRig:
    def __init__(self, bench: Bench) -> None:
        self.bench, self.cluster = bench, bench.cluster
        self.configs = NvidiaConfigs(bench.environment, PLACE)
        self.alive, self.beats = True, 0

    def config_map(self, data: Mapping[str, str] = THEIRS) -> None:
        apply.create(self.cluster.api, "/api/v1/namespaces/default/configmaps", config_map("configs", data))

    def data(self) -> dict[str, str]:
        return dict(apply.get(self.cluster.api, PATH)["data"])

    def node(self, label: str = "", *, tainted: bool = True) -> None:
        raw = node(labels={CONFIG_LABEL: label} if label else {})
        raw["spec"] = {**raw.get("spec", {}), "taints": [dict(CHANGING_TAINT)] if tainted else []}
        self.cluster.node(raw)

    def plan(self, replicas: int = 4, *, asked: str = "", **more: Any) -> None:
        items = [{"index": 0, "mps": {"replicas": replicas}}]
        self.cluster.plan(devicePlugin={"backend": "nvidia"}, gpus=items, **more)
        self.ask(asked)

    def ask(self, key: str) -> None:
        uid = self.cluster.get_node()["metadata"]["uid"]
        found = status(gpu(partitions=[partition(0)]))
        found["node"] = {**found.get("node", {}), "uid": uid}
        found["devicePlugin"] = {"backend": "nvidia", **({"config": key} if key else {})}
        self.cluster.agent_status("n1", found)

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.beats += self.alive
            self.cluster.beat("n1", f"2026-01-01T00:{self.beats:02d}:00.000000Z")
            self.bench.load()
            self.configs.run()
            self.bench.clock.now += 10

    def label(self) -> str:
        return str((self.cluster.get_node()["metadata"].get("labels") or {}).get(CONFIG_LABEL, ""))


@pytest.fixture
def rig(bench: Bench) -> ConfigsRig:
    return ConfigsRig(bench)


def test_a_plan_gets_a_key_and_other_keys_stay(rig: ConfigsRig) -> None:
    rig.config_map()
    rig.node()
    rig.plan()
    rig.run(3)

    assert rig.data() == {**THEIRS, FOUR.key: FOUR.text}
    assert rig.label() == ""


def test_the_label_moves_when_the_agent_requests_it(rig: ConfigsRig) -> None:
    rig.config_map()
    rig.node()
    rig.plan(asked=FOUR.key)
    rig.run(3)
    assert rig.label() == FOUR.key

    two = NodeConfig(replicas=2, renamed=True)
    rig.cluster.pin("n1", {"index": 0, "mps": {"replicas": 2}})
    rig.run(3)
    assert rig.label() == FOUR.key
    rig.ask(two.key)
    rig.run(3)

    assert rig.label() == two.key
    assert rig.data() == {**THEIRS, FOUR.key: FOUR.text, two.key: two.text}


@pytest.mark.parametrize(
    ("label", "tainted", "asked"),
    [("theirs", True, FOUR.key), ("", False, FOUR.key), ("", True, NodeConfig(replicas=8).key)],
    ids=["a label of others", "no taint", "another config than that of the plan"],
)
def test_a_label_that_may_not_move_stays(rig: ConfigsRig, label: str, tainted: bool, asked: str) -> None:
    rig.config_map()
    rig.node(label, tainted=tainted)
    rig.plan(asked=asked)
    rig.run(12)

    assert rig.label() == label


def test_what_a_silent_agent_asked_for_is_not_done(rig: ConfigsRig) -> None:
    rig.config_map()
    rig.node()
    rig.plan()
    rig.run(1)
    rig.alive = False
    rig.run(10)
    rig.ask(FOUR.key)
    rig.run(2)
    assert rig.label() == ""

    rig.alive = True
    rig.run(2)
    assert rig.label() == FOUR.key


def test_a_plan_that_requests_nothing_any_more_is_read_again_before_the_label_moves(rig: ConfigsRig) -> None:
    rig.config_map()
    rig.node()
    rig.plan(asked=FOUR.key)
    rig.run(1)  # the key is written first
    rig.ask("")
    rig.configs.run()  # the watch has not brought it yet
    assert rig.label() == ""


def test_a_key_that_another_client_removed_or_changed_returns(rig: ConfigsRig) -> None:
    rig.config_map({**THEIRS, FOUR.key: "version: v1"})
    rig.node()
    rig.plan()
    rig.run(1)
    assert rig.data()[FOUR.key] == FOUR.text
    apply.merge_patch(rig.cluster.api, PATH, {"data": {FOUR.key: None}})
    rig.run(8)

    assert rig.data()[FOUR.key] == FOUR.text


def test_a_config_map_that_is_not_there_is_no_end(rig: ConfigsRig) -> None:
    rig.node()
    rig.plan(asked=FOUR.key)
    rig.run(2)
    assert rig.label() == ""
    assert rig.bench.errors("configs") >= 1

    rig.config_map()
    rig.run(8)
    assert rig.label() == FOUR.key


def test_a_key_of_others_that_comes_between_is_kept(rig: ConfigsRig) -> None:
    rig.config_map()
    rig.node()
    rig.plan()
    fault = rig.cluster.refuse("PATCH", "/configmaps/", code=409)
    rig.run(1)
    rig.cluster.server.faults.remove(fault)
    apply.merge_patch(rig.cluster.api, PATH, {"data": {"more": "theirs"}})
    rig.run(8)

    assert rig.data() == {**THEIRS, "more": "theirs", FOUR.key: FOUR.text}


def test_without_a_config_map_in_the_settings_nothing_is_written(bench: Bench) -> None:
    rig = ConfigsRig(bench)
    rig.config_map()
    rig.configs = NvidiaConfigs(bench.environment, NvidiaConfigMap())
    rig.node()
    rig.plan(asked=FOUR.key)
    rig.run(3)

    assert rig.data() == THEIRS
    assert rig.label() == ""


@pytest.mark.parametrize(("backend", "value"), [("nvidia", "true"), ("gpuplan", "false"), ("", "true")])
def test_the_operators_plugin_stays_on_where_it_is_the_backend(bench: Bench, backend: str, value: str) -> None:
    """Or may be: where the plan is not there, as while it is replaced."""
    on = {DEVICE_PLUGIN: "true", LABEL_PARTITIONING: "mps"}
    bench.cluster.node(node(labels=on))
    if backend:
        bench.cluster.plan(devicePlugin={"backend": backend})
    bench.load()
    NodeLabels(bench.environment, manage_operator=True).run()

    labels = bench.cluster.get_node()["metadata"]["labels"]
    assert (labels[DEVICE_PLUGIN], labels[LABEL_NODE_AGENT]) == (value, "true")

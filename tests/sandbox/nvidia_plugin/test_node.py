"""NVIDIA's pods on one node: volumes that follow late, links, signals, restarts, labels of feature discovery."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from crds.v1alpha1 import paths
from kube import apply, clients
from sandbox.apiserver import ApiServer
from sandbox.driver.machine import create, observe
from sandbox.mps import clients as mps_clients
from sandbox.nvidia_plugin.node import CONFIG_LABEL, CONFIG_MAP, NAMESPACE, Timings
from sandbox.nvidia_plugin.plugin import NvidiaDevicePlugin
from sandbox.nvidia_plugin.pods import DISCOVERY, MPS_DAEMON, PLUGIN, DaemonSet
from tests.builders.models import H100
from tests.clock import Clock
from tests.sandbox.kubelet.conftest import KubeletBench, root
from tests.sandbox.nvidia_plugin.watched import WatchedNode

__all__ = ["root"]  # a fixture
NODE = paths.node("n")
MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PLAIN = "version: v1\n"
WHOLE = "nvidia.com/gpu"
TIMINGS = Timings(projection_seconds=60, discovery_seconds=60, retry_seconds=30, backoff_seconds=(10, 20, 40))


def mps(replicas: int) -> str:
    return f"version: v1\nsharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"


class WatchedNodeRig:
    """Time moves by `wait` only; the kubelet's part is to run pods at once."""

    def __init__(self, root: Path) -> None:
        self.server = ApiServer()
        self.server.start()
        self.api = clients.for_url(self.server.url)
        apply.create(self.api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        apply.create(self.api, paths.NODES, {"metadata": {"name": "n"}})
        data = {"default": PLAIN, "a": mps(4), "b": mps(2)}
        apply.create(self.api, MAP, {"metadata": {"name": CONFIG_MAP}, "data": data})
        create(root / "machine.json", [(H100, {})], "seed")
        self.bench = KubeletBench(root / "kubelet")
        self.bench.kubelet()
        self.bench.wait_serving()
        self.clock = Clock()
        self.root = root
        self.node = WatchedNode(
            self.api,
            "n",
            kubelet_dir=root / "kubelet",
            mps_root=root / "m",
            machine=root / "machine.json",
            timings=TIMINGS,
            clock=self.clock,
        )

    def close(self) -> None:
        self.node.stop()
        self.bench.close()
        self.server.stop()

    def step(self) -> "WatchedNodeRig":
        """DaemonSets, then the kubelet, then what is on the node."""
        self.node.step()
        for pod in apply.get(self.api, PODS)["items"]:
            path = f"{PODS}/{pod['metadata']['name']}"
            if pod["metadata"].get("deletionTimestamp"):
                apply.delete(self.api, path, grace_seconds=0)
            elif pod.get("status", {}).get("phase") != "Running":
                apply.merge_patch(self.api, f"{path}/status", {"status": {"phase": "Running"}})
        self.node.step()
        return self

    def wait(self, seconds: float, times: int = 1) -> "WatchedNodeRig":
        for _ in range(times):
            self.clock.now += seconds
            self.step()
        return self

    def label(self, value: str | None) -> "WatchedNodeRig":
        apply.merge_patch(self.api, NODE, {"metadata": {"labels": {CONFIG_LABEL: value}}})
        return self.step()

    def write(self, data: Mapping[str, str | None]) -> None:
        apply.merge_patch(self.api, f"{MAP}/{CONFIG_MAP}", {"data": data})
        self.step()

    def sighup(self, daemon_set: DaemonSet) -> None:
        """As a process on the machine sends SIGHUP."""
        (self.node.processes.entry(daemon_set.program) / "SIGHUP").touch()

    def labels(self) -> Mapping[str, str]:
        return apply.get(self.api, NODE)["metadata"].get("labels") or {}

    def link(self, daemon_set: DaemonSet = PLUGIN) -> str:
        """As it is seen on the host, by its path."""
        pod = self.node.pod(daemon_set)
        assert pod is not None
        return str((self._volumes(pod.uid) / "kubernetes.io~empty-dir/config/config.yaml").readlink())

    def sees(self, key: str, daemon_set: DaemonSet = PLUGIN) -> str | None:
        pod = self.node.pod(daemon_set)
        assert pod is not None
        path = self._volumes(pod.uid) / "kubernetes.io~configmap/available-configs" / "..data" / key
        return path.read_text() if path.exists() else None

    def _volumes(self, uid: str) -> Path:
        return self.root / "kubelet" / "pods" / uid / "volumes"

    def serves(self) -> list[str]:
        return list(self.node.history[-1].get(WHOLE, ()))

    def replicas(self, count: int) -> list[str]:
        return [f"{gpu['uuid']}::{n}" for gpu in observe(self.root / "machine.json")["gpus"] for n in range(count)]

    def whole(self) -> list[str]:
        return [gpu["uuid"] for gpu in observe(self.root / "machine.json")["gpus"]]


@pytest.fixture
def rig(root: Path) -> Iterator[WatchedNodeRig]:
    made = WatchedNodeRig(root)
    yield made.step()
    made.close()


def until(rig: WatchedNodeRig, met: Callable[[], object], seconds: float = 600) -> None:
    for _ in range(int(seconds / 5)):
        if met():
            return
        rig.wait(5)
    raise AssertionError((rig.node.history, rig.node.exits, rig.labels()))


def shared(rig: WatchedNodeRig, key: str, count: int) -> None:
    """Replicas: the daemon's pod comes by a label, and another client sends the signal that its sidecar cannot."""
    rig.label(key)

    def signalled() -> bool:
        if rig.serves() == rig.replicas(count):
            return True
        if rig.node.pod(MPS_DAEMON) and rig.link(MPS_DAEMON).endswith(f"/{key}"):
            rig.sighup(MPS_DAEMON)
        return False

    until(rig, signalled)


def test_a_new_node_has_the_default(rig: WatchedNodeRig) -> None:
    assert rig.link() == "/available-configs/default"
    assert rig.serves() == rig.whole()
    assert rig.node.pod(MPS_DAEMON) is None


def test_a_label_moves_the_link_and_the_plugin_reloads(rig: WatchedNodeRig) -> None:
    rig.label("a")
    assert rig.link() == "/available-configs/a"
    assert rig.serves() == []  # it waits for the MPS daemon


def test_each_pod_sees_a_new_key_late_and_at_its_own_time(rig: WatchedNodeRig) -> None:
    rig.write({"c": PLAIN})
    assert rig.sees("c") is None
    rig.wait(61)
    assert (rig.sees("c"), rig.sees("c", DISCOVERY)) == (PLAIN, None)
    rig.wait(60)
    assert rig.sees("c", DISCOVERY) == PLAIN


def test_new_content_of_the_key_in_force_is_seen_and_not_loaded(rig: WatchedNodeRig) -> None:
    rig.write({"default": mps(4)})
    rig.wait(61)
    assert rig.sees("default") == mps(4)
    assert rig.serves() == rig.whole()


def test_a_key_that_is_not_projected_yet_ends_the_sidecar_and_comes_with_a_restart(rig: WatchedNodeRig) -> None:
    rig.write({"c": mps(1)})
    rig.label("c")
    assert rig.link() == "/available-configs/default"
    assert rig.serves() == rig.whole()
    rig.wait(10, times=15)
    assert rig.link() == "/available-configs/c"


def test_a_bad_config_takes_the_gpus_away_and_ends_the_plugin_again_and_again(rig: WatchedNodeRig) -> None:
    rig.write({"c": mps(1)})
    rig.wait(130)
    rig.label("c")
    assert rig.serves() == []
    assert "replicas: 1 is less than the minimum of 2" in rig.node.exits[0]
    rig.wait(10, times=10)
    assert rig.serves() == []
    rig.label(None)
    until(rig, lambda: rig.serves() == rig.whole())


def test_a_deleted_pod_comes_back_new_and_passes_through_the_default(rig: WatchedNodeRig) -> None:
    shared(rig, "a", 4)
    before = rig.node.pod(PLUGIN)
    rig.node.history.clear()
    rig.node.delete(PLUGIN)
    until(rig, lambda: rig.node.pod(PLUGIN) not in (before, None) and rig.serves() == rig.replicas(4))
    assert before is not None
    assert not before.folder.exists()
    plugin = rig.node.pod(PLUGIN)
    assert plugin is not None
    assert isinstance(plugin.program, NvidiaDevicePlugin)
    assert plugin.program.loads == 2  # the default, which its init container chose, and the label's


def test_a_taint_that_its_pods_do_not_tolerate_keeps_them_off(rig: WatchedNodeRig) -> None:
    taints = [{"key": "gpuplan.dev/changing", "effect": "NoSchedule"}]
    apply.merge_patch(rig.api, NODE, {"spec": {"taints": taints}})
    rig.node.delete(PLUGIN)
    rig.wait(10, times=5)
    assert rig.node.pod(PLUGIN) is None
    apply.merge_patch(rig.api, NODE, {"spec": {"taints": None}})
    until(rig, lambda: rig.serves() == rig.whole())


def test_the_mps_daemon_gets_no_signal_of_its_sidecar(rig: WatchedNodeRig) -> None:
    shared(rig, "a", 4)
    folder = rig.root / "m" / WHOLE
    started = (folder / ".started").stat().st_ctime_ns
    rig.label("b")
    until(rig, lambda: rig.link(MPS_DAEMON) == "/available-configs/b")
    assert rig.serves() == rig.replicas(2)
    links = set()
    for _ in range(40):
        rig.wait(5)
        links.add(rig.link(MPS_DAEMON))
    assert links == {"/available-configs/default", "/available-configs/b"}
    assert (folder / ".started").stat().st_ctime_ns == started


def test_after_mps_the_label_takes_the_daemon_away_once_its_clients_have_ended(rig: WatchedNodeRig) -> None:
    shared(rig, "a", 4)
    until(rig, lambda: rig.labels().get("nvidia.com/mps.capable") == "true")
    mps_clients.connect(rig.root / "m" / WHOLE / "pipe", 7, rig.whole()[0])
    rig.label(None)
    until(rig, lambda: rig.labels().get("nvidia.com/mps.capable") == "false")
    rig.wait(10, times=3)
    assert (rig.root / "m" / WHOLE / ".started").exists()
    mps_clients.disconnect(rig.root / "m" / WHOLE / "pipe", 7)
    rig.wait(1)
    assert not (rig.root / "m" / WHOLE / ".started").exists()
    assert rig.node.pod(MPS_DAEMON) is None


def test_feature_discovery_labels_late(rig: WatchedNodeRig) -> None:
    until(rig, lambda: "nvidia.com/gpu.product" in rig.labels())
    rig.label("a")
    rig.wait(30)
    assert rig.labels()["nvidia.com/gpu.replicas"] == "1"
    rig.wait(31)
    found: dict[str, Any] = {
        name: rig.labels()[f"nvidia.com/gpu.{name}"] for name in ("product", "replicas", "sharing-strategy")
    }
    assert found == {"product": "NVIDIA-H100-80GB-HBM3-SHARED", "replicas": "4", "sharing-strategy": "mps"}


def test_a_signal_that_is_lost_leaves_the_old_config_in_force(rig: WatchedNodeRig) -> None:
    rig.node.deaf = True
    rig.label("a")
    rig.wait(1000)
    assert rig.link() == "/available-configs/a"
    assert rig.serves() == rig.whole()
    rig.sighup(PLUGIN)
    rig.step()
    assert rig.serves() == []
    assert rig.node.signalled == [PLUGIN.program]


def test_without_its_config_map_nothing_starts_and_that_is_said_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = WatchedNodeRig(root)
    apply.delete(rig.api, f"{MAP}/{CONFIG_MAP}")
    try:
        rig.wait(10, times=3)
        assert apply.get(rig.api, PODS)["items"] == []
        said = f"node n: NVIDIA's device plugin waits for ConfigMap {CONFIG_MAP} in namespace {NAMESPACE}: create it"
        assert [message for message in caplog.messages if "waits" in message] == [said]
    finally:
        rig.close()


def test_a_config_map_that_is_gone_leaves_what_runs(rig: WatchedNodeRig) -> None:
    apply.delete(rig.api, f"{MAP}/{CONFIG_MAP}")
    rig.label("a")
    assert rig.link() == "/available-configs/a"
    assert rig.sees("a") == mps(4)

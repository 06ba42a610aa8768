"""A node whose GPUs NVIDIA's device plugin serves: the product's own processes, and the stand-in."""

from collections.abc import Iterator
from typing import Any

import pytest

from crds.v1alpha1 import paths
from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN
from kube import apply
from sandbox.cluster import Cluster
from sandbox.driver.machine import observe
from sandbox.kubelet.settings import Timings
from sandbox.node import SandboxNode
from sandbox.nvidia_plugin.mps_daemon import DEFAULT, EXCLUSIVE_PROCESS, tell
from sandbox.nvidia_plugin.node import CONFIG_LABEL, CONFIG_MAP, NAMESPACE
from sandbox.nvidia_plugin.pods import PLUGIN
from tests.builders import objects
from tests.sandbox.nvidia_plugin.watched import WatchedNode
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)
Raw = dict[str, Any]
NODE = "n"
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PLAN = paths.plan(NODE)
SECONDS = 150.0
GRACE_SECONDS, REPORT_SECONDS = 20.0, 5.0
"""Of a plugin's devices after its end, and between two writes of the Node: a real kubelet takes minutes for both."""
PEOPLES = {"default": "version: v1\n", "team-a": "version: v1\nflags: {migStrategy: none}\n"}


class NodeOfNvidia(SandboxNode):
    """Remembers what NVIDIA's programs did."""

    nvidia_type = WatchedNode

    def _timings(self) -> Timings:
        return Timings(endpoint_grace_seconds=GRACE_SECONDS, status_report_seconds=REPORT_SECONDS)


class BackendRig:
    """The cluster, and what a test says and sees of it."""

    def __init__(self) -> None:
        self.cluster = Cluster(node_type=NodeOfNvidia)
        labels = {
            "gpuplan.dev/gpu-partitioning": "mps",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": "2",
            DEVICE_PLUGIN: "true",
        }
        node = objects.manifest(objects.node(NODE, labels=labels), status=False)
        self.cluster.start([node, objects.config_map(CONFIG_MAP, PEOPLES, namespace=NAMESPACE)])
        there = eventually(lambda: self.cluster.nodes.get(NODE), "the node")
        eventually(there.machine.exists, "its GPUs")
        self.sandbox = there
        assert isinstance(there.nvidia, WatchedNode)
        self.nvidia = there.nvidia

    @property
    def api(self) -> Any:
        return self.cluster.api

    def close(self) -> None:
        self.cluster.stop()

    def request(self, replicas: int) -> None:
        """So many replicas of each GPU; 0: whole GPUs."""
        item: Raw = {"mps": {"replicas": replicas}} if replicas else {"whole": {}}
        spec = {"devicePlugin": {"backend": "nvidia"}, "gpus": [{"index": index, **item} for index in (0, 1)]}
        apply.merge_patch(self.api, PLAN, {"spec": spec})

    def label(self, value: str | None) -> None:
        apply.merge_patch(self.api, paths.node(NODE), {"metadata": {"labels": {CONFIG_LABEL: value}}})

    def pod(self, name: str, resource: str) -> None:
        self.cluster.create(objects.manifest(objects.pod(name, requests={resource: "1"})))

    def delete(self, name: str) -> None:
        apply.delete(self.api, f"/api/v1/namespaces/default/pods/{name}", grace_seconds=0)

    def phase(self, name: str) -> str:
        return next((p["status"].get("phase", "") for p in self.cluster.pods() if p["metadata"]["name"] == name), "")

    def plan(self) -> Raw:
        return next((plan for plan in self.cluster.plans() if plan["metadata"]["name"] == NODE), {})

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = {c["type"]: c for c in self.plan().get("status", {}).get("conditions", ())}.get(kind, {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def node(self) -> Raw:
        return apply.get(self.api, paths.node(NODE))

    def chosen(self) -> str:
        return str(self.node()["metadata"]["labels"].get(CONFIG_LABEL, ""))

    def keys(self) -> set[str]:
        data = apply.get(self.api, paths.config_map(NAMESPACE, CONFIG_MAP))["data"]
        return set(data)

    def modes(self) -> set[int]:
        return {gpu["compute_mode"] for gpu in observe(self.sandbox.machine)["gpus"]}

    def threads(self) -> str:
        return tell(self.sandbox.root / "m" / SHARED / "pipe", command="get_default_active_thread_percentage").strip()

    def seen(self) -> object:
        conditions = {kind: self.condition(kind) for kind in ("Ready", "OwnershipConflict")}
        status = self.plan().get("status", {})
        shown = {name: count for name, count in self.node()["status"]["allocatable"].items() if "nvidia" in name}
        nvidia = (self.nvidia.history[-3:], self.nvidia.exits, self.nvidia.signalled)
        return conditions, status.get("devicePlugin"), shown, self.chosen(), nvidia, self.node()["spec"].get("taints")

    def await_ready(self, resource: str, count: int) -> None:
        """Confirmed, and the Node shows exactly these."""

        def settled() -> bool:
            shown = self.node()["status"]["allocatable"]
            other = WHOLE if resource == SHARED else SHARED
            return (
                self.condition("Ready")[:2] == ("True", "Confirmed")
                and shown.get(resource) == str(count)
                and shown.get(other, "0") == "0"
            )

        eventually(settled, f"{count} of {resource}", SECONDS, seen=self.seen)


@pytest.fixture
def rig() -> Iterator[BackendRig]:
    made = BackendRig()
    try:
        eventually(lambda: made.plan().get("status"), "a plan with a status", SECONDS)
        yield made
    finally:
        made.close()


def test_whole_to_replicas_to_others_and_back(rig: BackendRig) -> None:
    rig.request(4)
    rig.await_ready(SHARED, 8)
    assert rig.modes() == {EXCLUSIVE_PROCESS}
    assert rig.threads() == "25.0"
    first = rig.chosen()
    for name in ("a", "b"):
        rig.pod(name, SHARED)
    eventually(lambda: rig.phase("a") == rig.phase("b") == "Running", "both run", SECONDS, seen=rig.seen)

    before = rig.nvidia.pod(PLUGIN)
    rig.nvidia.delete(PLUGIN)  # its DaemonSet brings a new one, which begins with the default
    new = "the plugin's new pod"
    eventually(lambda: rig.nvidia.pod(PLUGIN) not in (None, before), new, SECONDS, seen=rig.seen)
    rig.await_ready(SHARED, 8)
    assert (rig.phase("a"), rig.phase("b"), rig.chosen()) == ("Running", "Running", first)

    rig.request(2)
    waits = ("False", "WaitingForRelease")
    eventually(lambda: rig.condition("Ready")[:2] == waits, "it waits", SECONDS, seen=rig.seen)
    assert "default/a" in rig.condition("Ready")[2]
    assert rig.chosen() == first
    rig.delete("a")
    eventually(lambda: not rig.phase("a"), "a is gone", SECONDS)
    assert rig.chosen() == first  # b holds one still
    rig.delete("b")
    rig.await_ready(SHARED, 4)
    assert rig.threads() == "50.0"

    rig.request(0)
    rig.await_ready(WHOLE, 2)
    eventually(lambda: rig.modes() == {DEFAULT}, "the modes are restored", SECONDS, seen=rig.modes)
    assert rig.nvidia.exits == []
    assert rig.keys() >= PEOPLES.keys()


def test_a_signal_that_is_lost_is_sent_once_more(rig: BackendRig) -> None:
    rig.request(0)
    rig.await_ready(WHOLE, 2)
    rig.nvidia.deaf = True
    rig.request(4)
    rig.await_ready(SHARED, 8)
    assert rig.nvidia.signalled.count(PLUGIN.program) == 1
    assert rig.nvidia.exits == []


def test_a_label_of_another_client_is_left_alone(rig: BackendRig) -> None:
    rig.label("team-a")
    rig.request(4)
    remedy = f"kubectl label node {NODE} {CONFIG_LABEL}-"
    eventually(lambda: remedy in rig.condition("OwnershipConflict")[2], "the conflict", SECONDS, seen=rig.seen)
    assert rig.condition("OwnershipConflict")[0] == "True"
    assert rig.chosen() == "team-a"
    rig.label(None)
    rig.await_ready(SHARED, 8)

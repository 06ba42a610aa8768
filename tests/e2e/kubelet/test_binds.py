"""Pods that are bound alongside changes are not refused by the kubelet, however slow the agent's API server is.

A real kubelet with its status tick of ten seconds, a real scheduler with pods of two profiles that come and go, and a
wire between agent and API server that delays each request and each event. A pod runs for a second; its successor is
bound at any moment of a change. Two GPUs are cut again in turn; a third keeps room for what others lose. A GPU on which
pods follow each other without a gap is not cut, so that no more than some pods come before each change is there.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from crds.v1alpha1.names import GROUP, Condition
from kube import apply
from kube.errors import NotFound
from partitioning.resources import mig_resource
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, mig_item
from tests.e2e.kubelet.programs import KubeletPrograms
from tests.e2e.real_cluster import RealCluster
from tests.e2e.wire import Wire
from tests.waiting import eventually

POD_COUNT = 200
CHANGE_COUNT = 6
PODS_PER_CHANGE = 33
LATE_SECONDS = 0.3
"""Of each piece of a request, an answer or a watch, between the agent and its API server."""
RUNS_SECONDS = 1.0
LIVE = 3
"""Pods of each profile that wait or run at any time: fewer than there are devices."""
SETTINGS = {"kubeletStartSeconds": 5, "releaseSlackSeconds": 2}
RESOURCES = {"small": mig_resource("1g.10gb"), "middle": mig_resource("2g.20gb")}
SMALL = [("1g.10gb", start) for start in range(7)]
MIDDLE = [("2g.20gb", start) for start in (0, 2, 4)]
BOTH = [("2g.20gb", 0), ("2g.20gb", 2), *SMALL[4:7]]


@pytest.fixture
def node(cluster: RealCluster, kubelet_programs: KubeletPrograms) -> Iterator[GpuNode]:
    wires: list[Wire] = []

    def slow(kubeconfig: str) -> str:
        wires.append(Wire(kubeconfig, late_seconds=LATE_SECONDS))
        return wires[-1].kubeconfig

    mig = (True, True, True)
    found = GpuNode(
        "gpu-binds", cluster, kubelet_programs, mig=mig, tick_seconds=10.0, settings=SETTINGS, agents_wire=slow
    )
    try:
        found.start()
        yield found
    finally:
        found.close()
        for wire in wires:
            wire.close()


@pytest.mark.timeout(1200)  # some seconds for each change on a quiet machine
def test_no_pod_that_is_bound_alongside_changes_is_refused(node: GpuNode, capsys: pytest.CaptureFixture[str]) -> None:
    layouts = [BOTH, SMALL, MIDDLE]
    write(node, layouts)
    node.wait_ready()
    eventually(lambda: counts_are_written(node), "the agent writes its Node's counts", SECONDS)
    crowd, changes = Crowd(node), 0
    while changes < CHANGE_COUNT or len(crowd.bound) < POD_COUNT:
        gpu = 1 + changes % 2
        layouts[gpu] = MIDDLE if layouts[gpu] is SMALL else SMALL
        write(node, layouts)
        crowd.let_in(PODS_PER_CHANGE)
        eventually(lambda: crowd.turn() and node.ready(), f"change {changes} is there", SECONDS, seen=crowd.__str__)
        assert sorted(node.slices(gpu).values()) == sorted(layouts[gpu])
        changes += 1
    eventually(lambda: crowd.turn() and not crowd.live, "all have ended", SECONDS, seen=crowd.__str__)
    with capsys.disabled():
        print(f"\n{len(crowd.bound)} pods bound alongside {changes} changes, {len(crowd.refused)} refused")
    assert crowd.refused == {}


def write(node: GpuNode, layouts: list[list[tuple[str, int]]]) -> None:
    node.write_plan(*(mig_item(*layout, index=gpu) for gpu, layout in enumerate(layouts)))


def counts_are_written(node: GpuNode) -> bool:
    """The condition is there only while it is not so."""
    found = apply.get(node.cluster.admin, f"/apis/{GROUP}/v1alpha1/gpupartitionplans/{node.name}")
    return Condition.ALLOCATABLE_WRITTEN not in [each["type"] for each in found["status"]["conditions"]]


class Crowd:
    """Pods that come as others end; each call of `turn` does what is due."""

    def __init__(self, node: GpuNode) -> None:
        self._node = node
        self._came = self._most = 0
        self.live = 0
        self.bound: set[str] = set()
        self.refused: dict[str, str] = {}
        """Why, by name."""

    def __str__(self) -> str:
        return f"{self._came} pods came, {len(self.bound)} were bound, {self.live} live, refused: {self.refused}"

    def let_in(self, count: int) -> None:
        """No more come before this is called again."""
        self._most = self._came + count

    def turn(self) -> bool:
        """True: that can be repeated."""
        pods = self._node.pods()
        live = dict.fromkeys(RESOURCES, 0)
        for raw in pods:
            name, phase = raw["metadata"]["name"], raw["status"].get("phase")
            if raw["spec"].get("nodeName"):
                self.bound.add(name)
            if phase == "Failed":
                self.refused[name] = str(raw["status"].get("message"))
            if phase not in ("Succeeded", "Failed"):
                live[name.partition("-")[0]] += 1
            elif "deletionTimestamp" not in raw["metadata"]:
                with suppress(NotFound):
                    apply.delete(self._node.cluster.admin, f"{PODS}/{name}")
        for kind, count in live.items():
            for _ in range(min(LIVE - count, self._most - self._came)):
                self._came += 1
                self._node.create_pod(f"{kind}-{self._came}", RESOURCES[kind], runs_seconds=RUNS_SECONDS)
        self.live = sum(live.values())
        return True

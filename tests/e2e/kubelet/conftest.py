"""The two kubelets under the conformance list: one node each, kept over all checks, at one real control plane.

Where a real kubelet cannot run, its half is skipped with the reason; the stand-in's half runs everywhere. A check that
waits for minutes carries the marker `long` and runs only with GPUPLAN_E2E_LONG=1 (`make e2e-scale`).
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kube import apply
from sandbox.kubelet.node_status import VERSION
from tests.e2e.kubelet.bench import KubeletSide
from tests.e2e.kubelet.gpu_node import GpuNode
from tests.e2e.kubelet.held import SETTINGS, offer_all
from tests.e2e.kubelet.nodes import TAINT, KubeletNode, RealKubeletNode, StandInNode, minor_of
from tests.e2e.kubelet.programs import KubeletPrograms
from tests.e2e.real_cluster import NODES, RealCluster
from tests.e2e.rig.controlplane import Missing, Places, obtain
from tests.e2e.rig.realkubelet import obstacle, scripted_runtime
from tests.waiting import eventually

SIDES = ("real", "stand-in")
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: waits for minutes; runs with GPUPLAN_E2E_LONG=1 only")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("GPUPLAN_E2E_LONG") == "1":
        return
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: set GPUPLAN_E2E_LONG=1, or use `make e2e-scale`"))


@pytest.fixture(scope="session")
def kubelet_programs(cluster: RealCluster) -> KubeletPrograms:
    """Kubelet of the control plane's version, and the runtime; skips where it cannot run."""
    reason = obstacle()
    if reason:
        pytest.skip(f"no real kubelet here: {reason}")
    places = Places.of(os.environ, Path.home())
    found = obtain(cluster.plane.version, places, programs=("kubelet", "kube-apiserver"), report=print)
    runtime = scripted_runtime(places)
    for each in (found, runtime):
        if isinstance(each, Missing):
            (pytest.fail if each.broken else pytest.skip)(f"no real kubelet: {each.message}")
    assert not isinstance(found, Missing)
    assert not isinstance(runtime, Missing)
    return KubeletPrograms(found["kubelet"], runtime)


@pytest.fixture(scope="module")
def machine_node(
    request: pytest.FixtureRequest, cluster: RealCluster, kubelet_programs: KubeletPrograms
) -> Iterator[GpuNode]:
    """Its pods have real processes; the module's `NODE` says what else it is to be."""
    name = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    of_module = {"settings": SETTINGS, "with_processes": True, **getattr(request.module, "NODE", {})}
    found = GpuNode(f"gpu-{name}", cluster, kubelet_programs, **of_module)
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.fixture
def node(request: pytest.FixtureRequest, machine_node: GpuNode) -> Iterator[GpuNode]:
    """With the slices of the module's `LAYOUT`, all free."""
    offer_all(machine_node, request.module.LAYOUT)
    yield machine_node
    machine_node.delete_pods()


@pytest.fixture(scope="session")
def latency_samples() -> int:
    """How often a latency is measured."""
    return int(os.environ.get("GPUPLAN_E2E_SAMPLES", "3"))


@pytest.fixture(scope="session")
def kubelet_nodes() -> Iterator[dict[str, KubeletNode]]:
    """By side; made when the first check needs it."""
    made: dict[str, KubeletNode] = {}
    with ExitStack() as ends:
        yield made
        for node in made.values():
            ends.callback(node.close)


@pytest.fixture(params=SIDES)
def bench(
    request: pytest.FixtureRequest, cluster: RealCluster, kubelet_nodes: dict[str, KubeletNode]
) -> Iterator[KubeletSide]:
    """A node that is Ready and empty, with its kubelet running."""
    side: str = request.param
    if side not in kubelet_nodes:
        kubelet_nodes[side] = node = _node(side, cluster, request)
        node.start()
        eventually(lambda: ready(cluster, node.name), f"{node.name} is Ready")
    made = KubeletSide(side, kubelet_nodes[side], cluster.admin, cluster.plane.version)
    yield made
    made.close()


def _node(side: str, cluster: RealCluster, request: pytest.FixtureRequest) -> KubeletNode:
    if side == "stand-in":
        if minor_of(cluster.plane.version) != minor_of(VERSION):
            pytest.skip(f"the stand-in imitates {VERSION}")
        return StandInNode("kubelet-stand-in", cluster)
    programs: KubeletPrograms = request.getfixturevalue("kubelet_programs")
    return RealKubeletNode("kubelet-real", cluster, kubelet=programs.kubelet, runtime=programs.runtime)


def ready(cluster: RealCluster, name: str) -> bool:
    """The kubelet reports it, and no pod is kept off the node any more."""
    for node in apply.get(cluster.admin, NODES)["items"]:
        if node["metadata"]["name"] == name:
            conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
            taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
            return conditions.get("Ready") == "True" and taints == [TAINT["key"]]
    return False

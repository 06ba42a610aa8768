"""Drained partitions with a real kubelet: holders run on and restart, no new pod comes, a start of it fails none."""

from collections.abc import Iterator

import pytest

from crds.v1alpha1.names import CONTROLLER_MANAGER
from kube import apply
from partitioning.resources import mig_resource
from tests.e2e.fleet import controller
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, Raw, mig_item
from tests.e2e.real_cluster import PLANS, plan
from tests.e2e.wire import Wire
from tests.waiting import eventually

HALF = mig_resource("3g.40gb")
HALVES = mig_item(("3g.40gb", 0), ("3g.40gb", 4))
NODE = {"settings": {"kubeletStartSeconds": 3, "releaseSlackSeconds": 4}, "with_processes": False}


@pytest.fixture
def node(machine_node: GpuNode) -> Iterator[GpuNode]:
    """With two halves, free."""
    write(machine_node, HALVES)
    machine_node.wait_ready()
    eventually(lambda: machine_node.offers(HALF, 2), "both halves are on offer", SECONDS)
    yield machine_node
    machine_node.delete_pods()


def write(node: GpuNode, item: Raw) -> None:
    """As the controller does: a new plan is empty."""
    api, path = controller(node.cluster), f"{PLANS}/{node.name}"
    if node.name not in [each["metadata"]["name"] for each in apply.get(node.cluster.admin, PLANS)["items"]]:
        apply.apply(api, path, plan(node.name), manager=CONTROLLER_MANAGER, force=True)
    apply.apply(api, path, plan(node.name, planned={"gpus": [item]}), manager=CONTROLLER_MANAGER, force=True)


def drain(node: GpuNode) -> None:
    write(node, {**HALVES, "drain": {"pod": "default/large", "uid": "uid-large", "partitions": sorted(node.slices())}})
    eventually(lambda: node.offers(HALF, 0), "neither half is for a new pod", SECONDS)


def test_holders_run_on_and_the_gpu_is_cut_at_their_end(node: GpuNode) -> None:
    raw = node.create_pod("holder", HALF, restart_policy="Always")
    held = node.visible(raw)
    drain(node)
    node.wait_ready()

    node.kubelet.runtime.end(node.wait_running(raw).container_id)
    eventually(
        lambda: node.containers(raw)[-1:] == [("running", held)] and len(node.containers(raw)) == 2, "again", SECONDS
    )
    node.kubelet.kill()
    node.kubelet.start()
    eventually(lambda: node.offers(HALF, 0) and node.phase(raw) == "Running", "drained on", SECONDS)
    assert node.visible(raw) == held
    assert sorted(node.slices().values()) == [("3g.40gb", 0), ("3g.40gb", 4)]

    apply.delete(node.cluster.admin, f"{PODS}/{raw['metadata']['name']}", grace_seconds=1)
    write(node, mig_item(("7g.80gb", 0)))
    eventually(lambda: list(node.slices().values()) == [("7g.80gb", 0)], "cut again", SECONDS)
    node.wait_ready()


def test_a_pod_between_two_of_its_containers_outlives_a_start_of_the_kubelet(node: GpuNode) -> None:
    """The plugin registers before the kubelet knows its pods: a pod whose device is Unhealthy then would be failed."""
    raw = node.create_pod("loops", HALF, restart_policy="Always", runs_seconds=0.2, restarts="99", exit_code="1")
    eventually(lambda: backs_off(node, raw), "it waits for its restart", SECONDS)
    held = node.containers(raw)[-1][1]
    drain(node)
    node.kubelet.kill()
    kubeconfig = (node.kubelet.folder / "kubeconfig").read_text()
    late = Wire(kubeconfig, opaque=True)
    late.cut()
    try:
        node.kubelet.use(late.kubeconfig)
        node.kubelet.start()
        eventually(lambda: node.offered(HALF) == (held,), "its half is healthy, and the free one is not", SECONDS)
        late.mend()
        before = len(node.containers(raw))
        eventually(lambda: len(node.containers(raw)) > before, "it starts again", SECONDS)
        assert node.phase(raw) != "Failed"
        assert node.containers(raw)[-1][1] == held
        eventually(lambda: node.offers(HALF, 0), "drained on", SECONDS)
    finally:
        node.kubelet.kill()
        node.kubelet.use(kubeconfig)
        node.kubelet.start()
        late.close()


def backs_off(node: GpuNode, raw: Raw) -> bool:
    status = apply.get(node.cluster.admin, f"{PODS}/{raw['metadata']['name']}")["status"]
    states = [each["state"] for each in status.get("containerStatuses") or ()]
    return [state.get("waiting", {}).get("reason") for state in states] == ["CrashLoopBackOff"]

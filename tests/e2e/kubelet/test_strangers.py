"""Pods that got their GPU by others than gpuplan, at the real kubelet: other plugins' ids, and claims of a DRA driver.

The other plugin or driver goes, its pod stays and is idle: no process shows on the GPU. A plan then needs everything
gone that is on it.
"""

import time
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest

from kube import apply
from kube.errors import NotFound
from kube.kubelet_api import podresources_pb2 as api
from kube.kubelet_api.paths import unix_target
from kube.kubelet_api.podresources_pb2_grpc import PodResourcesListerStub
from nodeagent.observed.kubelet import Kubelet
from partitioning.resources import mig_resource
from tests.builders import objects
from tests.e2e.kubelet.dra_driver import DRIVER, DraDriver
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, Raw, mig_item
from tests.e2e.kubelet.held import SETTINGS
from tests.e2e.kubelet.nodes import minor_of
from tests.e2e.real_cluster import PLANS
from tests.sandbox.kubelet.fakes import FakePlugin
from tests.waiting import eventually

NODE = {"settings": {**SETTINGS, "gpuResources": ["example.com/accelerator"]}, "with_processes": False}
LAYOUT = mig_item(("1g.10gb", 0), ("3g.40gb", 4))
ALL_ELSE = mig_item(("7g.80gb", 0))
GPU = "nvidia.com/gpu"
LISTS_CLAIMS = 34
OBEYS_TAINT_RULES = 37
DRA = "/apis/resource.k8s.io/v1"
TAINT_RULES = f"{DRA}/devicetaintrules"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"


@pytest.fixture
def node(machine_node: GpuNode) -> Iterator[GpuNode]:
    """With one small slice and half a GPU, all free."""
    machine_node.write_plan(LAYOUT)
    machine_node.wait_ready()
    yield machine_node
    for pod in apply.get(machine_node.cluster.admin, PODS)["items"]:
        for container in machine_node.kubelet.runtime.containers(pod["metadata"]["uid"]):
            machine_node.kubelet.runtime.release(container.container_id)
        with suppress(NotFound):  # it was being deleted
            apply.delete(machine_node.cluster.admin, f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)
    eventually(lambda: not apply.get(machine_node.cluster.admin, PODS)["items"], "no pods are left")


def status(node: GpuNode) -> Raw:
    found = apply.get(node.cluster.admin, f"{PLANS}/{node.name}")
    now: Raw = found.get("status") or {}
    return now if now.get("observedGeneration") == found["metadata"]["generation"] else {}


def message(node: GpuNode) -> str:
    """Of the only GPU, for the newest version of the plan."""
    return str(next((gpu["message"] for gpu in status(node).get("gpus") or ()), ""))


def layout(node: GpuNode) -> list[tuple[str, int]]:
    return sorted(node.slices().values())


@pytest.mark.parametrize(
    ("resource", "device_id"),
    [
        (GPU, "nvidia0/gi1"),
        (GPU, "nvidia0"),
        (GPU, "nvidia0/vgpu0"),
        ("mig.das.com/3g.40gb", "3g.40gb-1"),
        (GPU, "tegra"),
        (GPU, "0:1"),
        ("example.com/accelerator", "7"),
    ],
)
def test_an_id_that_names_nothing_keeps_the_node_as_it_is(node: GpuNode, resource: str, device_id: str) -> None:
    plugin = FakePlugin(node.kubelet.paths.plugin_dir, resource, "other.sock").offer(device_id)
    plugin.serve().register()
    try:
        raw = node.create_pod("old", resource)
        node.wait_running(raw)
    finally:
        plugin.stop()
    node.write_plan(ALL_ELSE)

    eventually(lambda: f"pod default/old holds {device_id}, an id of" in message(node), "the plan names it", SECONDS)
    assert layout(node) == [("1g.10gb", 0), ("3g.40gb", 4)]
    assert node.offered(mig_resource("3g.40gb")) == ()
    assert node.offered(mig_resource("1g.10gb")) == ()

    began = time.monotonic()
    apply.delete(node.cluster.admin, f"{PODS}/old")
    node.wait_ready()
    assert layout(node) == [("7g.80gb", 0)]
    print(f"{resource} {device_id}: free {time.monotonic() - began:.0f} s after the deletion")


def test_an_id_of_another_resource_keeps_nothing(node: GpuNode) -> None:
    plugin = FakePlugin(node.kubelet.paths.plugin_dir, "example.com/nic", "nic.sock").offer("mlx5_0")
    plugin.serve().register()
    try:
        node.wait_running(node.create_pod("nic", "example.com/nic"))
        node.write_plan(ALL_ELSE)
        node.wait_ready()
        assert layout(node) == [("7g.80gb", 0)]
    finally:
        plugin.stop()


@pytest.fixture
def driver(node: GpuNode) -> Iterator[DraDriver]:
    """Of a cluster in which it has published the half."""
    if minor_of(node.cluster.plane.version) < LISTS_CLAIMS:
        pytest.skip("this kubelet prepares no claims of resource.k8s.io/v1")
    admin, name = node.cluster.admin, "gpu-0-mig-3g40gb-9-4"
    select = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    made: dict[str, Raw] = {
        f"{DRA}/deviceclasses": {"kind": "DeviceClass", "metadata": {"name": "mig"}, "spec": {"selectors": [select]}},
        f"{DRA}/resourceslices": {
            "kind": "ResourceSlice",
            "metadata": {"name": "half"},
            "spec": {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": [{"name": name}]},
        },
        CLAIMS: {
            "kind": "ResourceClaim",
            "metadata": {"name": "half", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "mig"}}]}},
        },
    }
    found = DraDriver(node.kubelet.paths.root, name)
    found.start()
    try:
        eventually(lambda: found.registered, "the kubelet has registered the driver", SECONDS)
        for path, body in made.items():
            apply.create(admin, path, {"apiVersion": "resource.k8s.io/v1", **body})
        yield found
    finally:
        found.stop()
        for path, body in made.items():
            node.cluster.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "--raw", f"{path}/{body['metadata']['name']}"
            )


def claimed(node: GpuNode) -> list[str]:
    """Devices of claims in the kubelet's List."""
    with grpc.insecure_channel(unix_target(node.kubelet.paths.pod_resources_socket)) as channel:
        answer = PodResourcesListerStub(channel).List(api.ListPodResourcesRequest(), timeout=60)
    containers = [container for pod in answer.pod_resources for container in pod.containers]
    resources = [each for c in containers for claim in c.dynamic_resources for each in claim.claim_resources]
    return [f"{each.driver_name}/{each.device_name}" for each in resources]


def conflict(node: GpuNode) -> str:
    conditions = status(node).get("conditions") or ()
    return next(
        (each["message"] for each in conditions if (each["type"], each["status"]) == ("OwnershipConflict", "True")), ""
    )


def test_what_a_claim_holds_outlives_the_driver(node: GpuNode, driver: DraDriver) -> None:
    half = next(uuid for uuid, place in node.slices().items() if place == ("3g.40gb", 4))
    raw = claim_pod(node)
    node.wait_running(raw)
    assert claimed(node) == [f"{DRIVER}/gpu-0-mig-3g40gb-9-4"]
    record = Kubelet(node.kubelet.paths.root, clock=time.monotonic, wall_clock=time.time).checkpoint()
    assert (raw["metadata"]["uid"], (f"{DRIVER}/gpu-0-mig-3g40gb-9-4",)) in [(e.pod_uid, e.ids) for e in record]
    eventually(
        lambda: "DRA driver runs on this node (its socket plugins" in conflict(node),
        "the driver is recognised",
        SECONDS,
    )
    driver.stop()
    node.write_plan(ALL_ELSE)

    eventually(lambda: "held by pod default/claims, which got it as" in message(node), "the plan names it", SECONDS)
    eventually(lambda: layout(node) == [("3g.40gb", 4)], "what is free went", SECONDS)
    assert list(node.slices()) == [half]
    node.kubelet.kill()
    node.kubelet.start()
    eventually(lambda: claimed_again(node), "the kubelet lists it again", SECONDS)
    assert list(node.slices()) == [half], "a kubelet that starts does not list it at first"

    # Without its driver the kubelet would not finish the pod.
    driver.start()
    apply.delete(node.cluster.admin, f"{PODS}/claims")
    eventually(lambda: not apply.get(node.cluster.admin, PODS)["items"], "the pod is gone", SECONDS)
    driver.stop()
    node.wait_ready()
    assert layout(node) == [("7g.80gb", 0)]
    slices = f"{DRA}/resourceslices"
    eventually(
        lambda: not apply.get(node.cluster.admin, slices)["items"],
        "the kubelet takes back what a driver offered that is gone, so that kube-scheduler sends no pod for it",
        SECONDS,
    )


@pytest.fixture
def ours(node: GpuNode) -> Raw:
    """A pod with a slice of ours, from before a driver comes: then gpuplan offers nothing new."""
    if minor_of(node.cluster.plane.version) < OBEYS_TAINT_RULES:
        pytest.skip("this control plane has no DeviceTaintRule, as it comes")
    raw = node.create_pod("ours", mig_resource("1g.10gb"))
    node.wait_running(raw)
    return raw


def test_a_taint_of_devices_ends_pods_with_claims_and_no_others(node: GpuNode, ours: Raw, driver: DraDriver) -> None:
    """From 1.37 on, by default. What the pod held is free once it is gone, as after any other end."""
    admin = node.cluster.admin
    node.wait_running(claim_pod(node))
    small = next(uuid for uuid, place in node.slices().items() if place == ("1g.10gb", 0))
    taint = {"key": "gpuplan.test/ill", "effect": "NoExecute"}
    rule = {"metadata": {"name": "ill"}, "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint}}
    apply.create(admin, TAINT_RULES, {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", **rule})
    try:
        eventually(lambda: [pod["metadata"]["name"] for pod in pods(node)] == ["ours"], "it is evicted", SECONDS)
    finally:
        apply.delete(admin, f"{TAINT_RULES}/ill")
    driver.stop()
    node.write_plan(mig_item(("1g.10gb", 0), ("2g.20gb", 4)))
    node.wait_ready()
    assert layout(node) == [("1g.10gb", 0), ("2g.20gb", 4)]
    assert small in node.slices()
    assert [(pod["metadata"]["uid"], pod["status"]["phase"]) for pod in pods(node)] == [
        (ours["metadata"]["uid"], "Running")
    ]


def pods(node: GpuNode) -> list[Raw]:
    found: list[Raw] = apply.get(node.cluster.admin, PODS)["items"]
    return found


def claimed_again(node: GpuNode) -> bool:
    try:
        return bool(claimed(node))
    except grpc.RpcError:
        return False


def claim_pod(node: GpuNode) -> Raw:
    container = objects.container("c", {}, image="gpuplan.test/image:1")
    container["resources"] = {**container.get("resources", {}), "claims": [{"name": "gpu"}]}
    body = objects.pod(
        "claims",
        containers=[container],
        nodeSelector={"kubernetes.io/hostname": node.name},
        resourceClaims=[{"name": "gpu", "resourceClaimName": "half"}],
        terminationGracePeriodSeconds=1,
        restartPolicy="Never",
        dnsPolicy="Default",
    )
    return apply.create(node.cluster.admin, PODS, objects.manifest(body))

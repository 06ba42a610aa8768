"""A node goes from NVIDIA's own DRA driver to gpuplan at the real kubelet, as docs/moving.md says, with a pod on it.

The pod got its instance from the driver, by a claim, and is idle: no process shows on the GPU. While the driver runs
gpuplan changes and offers nothing; once it is away, all but what the claim holds is gpuplan's.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kube import apply
from nodeagent.observed.claim_records import of_driver
from partitioning.resources import mig_resource
from sandbox.driver.abi.library import Library
from sandbox.driver.abi.registry import Export
from sandbox.driver.store import Store
from tests.builders import objects
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, Raw, mig_item
from tests.e2e.kubelet.held import SETTINGS
from tests.e2e.kubelet.nodes import minor_of
from tests.e2e.nvidia.conftest import library, places, program  # noqa: F401 # fixtures
from tests.e2e.real_cluster import PLANS
from tests.e2e.rig.nvidia.dra import DRIVER, DYNAMIC, DraDriver
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.programs import DRA_DRIVER
from tests.quirks import Quirks
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(3000)  # the first run builds the program
NODE = {"settings": SETTINGS, "with_processes": False}
LAYOUT = mig_item(("1g.10gb", 0), ("3g.40gb", 4))
NOTHING = mig_item()
ALL_ELSE = mig_item(("7g.80gb", 0))
SERVES_CLAIMS = 34
DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLASS, CLAIM = "mig.nvidia.com", "served"
OURS = (mig_resource("1g.10gb"), mig_resource("3g.40gb"), mig_resource("7g.80gb"))
TYPE = f"device.attributes['{DRIVER}'].type == 'mig'"
PROFILE = f"device.attributes['{DRIVER}'].profile == '3g.40gb'"
OBJECTS: dict[str, Raw] = {
    f"{DRA}/deviceclasses": {
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}' && {TYPE}"}}]},
    },
    f"{DRA}/namespaces/default/resourceclaims": {
        "kind": "ResourceClaim",
        "metadata": {"name": CLAIM, "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {"deviceClassName": CLASS, "selectors": [{"cel": {"expression": PROFILE}}]},
                    }
                ]
            }
        },
    },
}


class WithMigDevices(Library):
    """The driver takes the UUID of an instance that it has made from the compute instance's info."""

    def perform(self, export: Export, arguments: tuple[int | None, ...]) -> None:
        super().perform(export, arguments)
        Quirks(names_mig_device=True).answered(export, arguments)


@pytest.fixture
def node(machine_node: GpuNode) -> GpuNode:
    if minor_of(machine_node.cluster.plane.version) < SERVES_CLAIMS:
        pytest.skip("this control plane has no resource.k8s.io/v1")
    return machine_node


@pytest.fixture(params=[(), (DYNAMIC,)], ids=["static", "DynamicMIG"])
def driver(
    request: pytest.FixtureRequest,
    node: GpuNode,
    program: Callable[[str, str], Path],  # noqa: F811
    library: Path,  # noqa: F811
    tmp_path: Path,
) -> Iterator[DraDriver]:
    """NVIDIA's, with the DeviceClass of its chart and a claim of half a GPU."""
    # The layout that an administrator left, or none: the driver makes and destroys instances itself.
    node.write_plan(LAYOUT if not request.param else NOTHING)
    node.wait_ready()
    plugin = program(DRA_DRIVER, "gpu-kubelet-plugin")
    host = Host(node.folder / f"nvidia{len(request.param)}", Store(node.machine), library, WithMigDevices)
    host.start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(node.cluster.plane.kubeconfig())
    found = DraDriver(plugin, host, node.name, kubeconfig, node.kubelet.paths.root, *request.param)
    found.start()
    try:
        for path, body in OBJECTS.items():
            apply.create(node.cluster.admin, path, {"apiVersion": "resource.k8s.io/v1", **body})
        yield found
    finally:
        for pod in node.pods():  # of a test that failed: its end must not wait for the driver
            apply.delete(node.cluster.admin, f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)
        found.stop()
        host.stop()
        for path, body in OBJECTS.items():
            node.cluster.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "--raw", f"{path}/{body['metadata']['name']}"
            )
        left = (*OBJECTS, SLICES)  # the kubelet takes the slices of a driver away that is gone
        eventually(
            lambda: not any(apply.get(node.cluster.admin, path)["items"] for path in left), "it is gone", SECONDS
        )


def test_a_node_is_taken_over(node: GpuNode, driver: DraDriver) -> None:
    eventually(lambda: "DRA driver runs on this node (its socket" in conflict(node), "it is recognised", SECONDS)
    raw = claim_pod(node)
    try:
        container = node.wait_running(raw)
    except AssertionError as error:
        raise AssertionError(driver.said()) from error
    ((held, place),) = [(uuid, found) for uuid, found in node.slices().items() if found[0] == "3g.40gb"]
    device = f"{DRIVER}/gpu-0-mig-3g40gb-9-{place[1]}"
    record = of_driver(json.loads(driver.record.read_text()))
    assert set(record) == {(raw["metadata"]["uid"], (f"{device} {held}",))}
    assert any(name.startswith(f"k8s.{DRIVER}/claim=") for name in container.options.cdi_names), container
    before = node.slices()

    node.write_plan(ALL_ELSE)
    eventually(lambda: conflict(node), "the plan is read", SECONDS)
    eventually(lambda: not any(node.offered(each) for each in OURS), "nothing is offered", SECONDS)
    assert node.slices() == before, "and nothing is changed, while the driver runs"

    driver.stop()
    says = f"held by pod default/claims, which got it as {device}"
    eventually(lambda: says in node.gpu_message(), "the plan names the pod", SECONDS, seen=lambda: status(node))
    eventually(lambda: node.slices() == {held: place}, "all that is free went", SECONDS)

    driver.start()  # without it the kubelet does not finish the pod
    apply.delete(node.cluster.admin, f"{PODS}/claims")
    eventually(lambda: not node.pods(), "the pod is gone", SECONDS, seen=driver.said)
    driver.stop()
    if driver.gates == (DYNAMIC,):  # it switches MIG off with its last instance, on Hopper and later
        eventually(lambda: "MIG mode is off" in node.gpu_message(), "the plan says what to do", SECONDS)
    else:
        node.wait_ready()
        assert list(node.slices().values()) == [("7g.80gb", 0)]


def status(node: GpuNode) -> Raw:
    found = apply.get(node.cluster.admin, f"{PLANS}/{node.name}")
    now: Raw = found.get("status") or {}
    return now if now.get("observedGeneration") == found["metadata"]["generation"] else {}


def conflict(node: GpuNode) -> str:
    """What the newest version of the plan says of it."""
    conditions = status(node).get("conditions") or ()
    return next(
        (each["message"] for each in conditions if (each["type"], each["status"]) == ("OwnershipConflict", "True")), ""
    )


def claim_pod(node: GpuNode) -> Raw:
    container = objects.container("c", {}, image="gpuplan.test/image:1")
    container["resources"] = {**container.get("resources", {}), "claims": [{"name": "gpu"}]}
    body = objects.pod(
        "claims",
        containers=[container],
        nodeSelector={"kubernetes.io/hostname": node.name},
        resourceClaims=[{"name": "gpu", "resourceClaimName": CLAIM}],
        terminationGracePeriodSeconds=1,
        restartPolicy="Never",
        dnsPolicy="Default",
    )
    return apply.create(node.cluster.admin, PODS, objects.manifest(body))

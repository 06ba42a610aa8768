"""Our device plugin and our agent with a real kubelet: register, advertise, allocate, survive each other's ends.

One node for the whole file, two GPUs: the first with MIG, the second for MPS. Only the person who writes plans
and pods is an administrator; the agent has the token that its kubelet mounted.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kube import apply
from kube.errors import NotFound
from nodeagent.handover.config import Loaded, read_loaded
from partitioning.resources import mig_resource, mps_resource_gb
from sandbox.driver import machine
from tests import incidents
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, Raw, mig_item
from tests.e2e.kubelet.nodes import has_active_list
from tests.e2e.real_cluster import NODES, PLANS
from tests.waiting import eventually

SMALL = mig_resource("1g.10gb")
HALF = mig_resource("3g.40gb")
NODE = {"mig": (True, False), "with_processes": False}
FIRST_LAYOUT = mig_item(("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4))


@pytest.fixture
def node(machine_node: GpuNode) -> Iterator[GpuNode]:
    """With two small slices and half a GPU, all free."""
    machine_node.write_plan(FIRST_LAYOUT)
    machine_node.wait_ready()
    # Where no process is seen, an agent without records doubts everything until a pod from before would have ended.
    eventually(lambda: known_to_be_free(machine_node), "no use is in doubt", SECONDS)
    yield machine_node
    pods = apply.get(machine_node.cluster.admin, PODS)["items"]
    for pod in pods:
        for container in machine_node.kubelet.runtime.containers(pod["metadata"]["uid"]):
            machine_node.kubelet.runtime.release(container.container_id)
        with suppress(NotFound):  # it was being deleted
            apply.delete(machine_node.cluster.admin, f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)
    eventually(lambda: not apply.get(machine_node.cluster.admin, PODS)["items"], "no pods are left")


def known_to_be_free(node: GpuNode) -> bool:
    status = apply.get(node.cluster.admin, f"{PLANS}/{node.name}")["status"]
    return all(part["state"] == "Free" for part in status["gpus"][0]["partitions"])


def loaded(node: GpuNode) -> Loaded | None:
    found = read_loaded(node.files)
    return found if isinstance(found, Loaded) else None


def another(now: Loaded | None, before: Loaded | None) -> bool:
    """Another process has the same config in force."""
    if now is None or before is None:
        return False
    return now.boot_token != before.boot_token and now.hash == before.hash and all(now.registered.values())


def signal_child(node: GpuNode, name: str, number: signal.Signals) -> None:
    """To the process itself; its supervisor starts it again."""
    pid = node.supervisor.children[name].pid
    assert pid is not None
    os.kill(pid, number)
    eventually(lambda: node.supervisor.children[name].pid not in (None, pid), f"{name} is started again", SECONDS)


def test_slices_are_made_advertised_and_allocated(node: GpuNode) -> None:
    hardware = node.slices()
    assert sorted(hardware.values()) == [("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4)]
    assert (node.allocatable(SMALL), node.allocatable(HALF)) == ("2", "1")

    pods = [node.create_pod(f"small-{number}", SMALL) for number in range(2)] + [node.create_pod("half", HALF)]
    given = [node.visible(raw) for raw in pods]
    assert sorted(given) == sorted(hardware)
    assert [hardware[uuid][0] for uuid in given] == ["1g.10gb", "1g.10gb", "3g.40gb"]
    ledger = json.loads(node.files.ledger.read_text())["allocations"]
    assert {entry["id"] for entry in ledger} >= set(given)


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_a_kubelet_restart_under_running_pods(node: GpuNode, kill: bool) -> None:
    first = node.create_pod("before", SMALL)
    held = node.visible(first)
    before = loaded(node)
    (node.kubelet.kill if kill else node.kubelet.stop)()
    node.kubelet.start()

    eventually(lambda: node.offers(SMALL, 2), "the plugin has registered again by itself", SECONDS)
    second = node.create_pod("after", SMALL)
    assert node.visible(second) not in (held, "")
    assert node.visible(first) == held
    assert len(node.kubelet.runtime.containers(first["metadata"]["uid"])) == 1, "the first was not started again"
    now = loaded(node)
    assert before is not None
    assert now is not None
    assert now.boot_token == before.boot_token, "the plugin's process lived on"
    node.wait_ready()


def test_a_kubelet_restart_changes_no_slice(node: GpuNode) -> None:
    """Its first Lists are empty: nothing may be concluded from them, not even with a plan that wants other slices."""
    raw = node.create_pod("holder", HALF)
    held = node.visible(raw)
    node.kubelet.kill()
    node.write_plan(mig_item(("1g.10gb", 4), ("1g.10gb", 5)))
    node.kubelet.start()

    eventually(lambda: sorted(node.slices().values())[0] == ("1g.10gb", 4) or held in node.slices(), "looked")
    eventually(lambda: node.allocatable(HALF) == "1", "the held slice is still offered", SECONDS)
    assert held in node.slices()
    assert node.visible(raw) == held


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_plugin_restart(node: GpuNode, number: signal.Signals) -> None:
    first = node.create_pod("before", SMALL)
    held = node.visible(first)
    before = loaded(node)
    signal_child(node, "plugin", number)

    eventually(lambda: another(loaded(node), before), "the new process has loaded the config", SECONDS)
    eventually(lambda: node.offers(SMALL, 2), "all slices are offered again", SECONDS)
    second = node.create_pod("after", SMALL)
    assert node.visible(second) not in (held, "")
    assert node.visible(first) == held
    node.wait_ready()


def test_an_agent_restart(node: GpuNode) -> None:
    raw = node.create_pod("runs-on", SMALL)
    held, hardware = node.visible(raw), node.slices()
    signal_child(node, "agent", signal.SIGKILL)
    node.wait_ready()
    assert node.slices() == hardware
    assert node.visible(raw) == held


def test_a_new_layout_leaves_a_slice_in_use_alone(node: GpuNode) -> None:
    raw = node.create_pod("holder", HALF)
    held = node.visible(raw)
    node.write_plan(mig_item(("2g.20gb", 0), ("2g.20gb", 2), ("3g.40gb", 4)))
    node.wait_ready()

    assert sorted(node.slices().values()) == [("2g.20gb", 0), ("2g.20gb", 2), ("3g.40gb", 4)]
    assert node.slices()[held] == ("3g.40gb", 4), "the same instance, not one like it"
    assert (node.allocatable(SMALL), node.allocatable(mig_resource("2g.20gb"))) == ("0", "2")
    assert node.visible(raw) == held


def test_a_slice_is_destroyed_when_its_pod_is_gone(node: GpuNode) -> None:
    raw = node.create_pod("holder", HALF)
    held = node.visible(raw)
    node.write_plan(
        mig_item(("4g.40gb", 0)),
    )
    node.write_plan(mig_item(("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 4)))
    eventually(lambda: waits_for_release(node), "the plan says who holds it", SECONDS)
    assert held in node.slices()

    apply.delete(node.cluster.admin, f"{PODS}/holder")
    node.wait_ready()
    assert sorted(node.slices().values()) == [("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 4)]


def test_a_slice_is_destroyed_when_its_pod_has_ended(node: GpuNode) -> None:
    """The object stays, as those of Jobs do. On 1.30 List keeps showing what the pod admitted last held."""
    raw = node.create_pod("worker", HALF)
    node.visible(raw)
    node.kubelet.runtime.end(node.wait_running(raw).container_id)
    eventually(lambda: node.phase(raw) == "Succeeded", "the pod has ended", SECONDS)
    node.write_plan(mig_item(("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 4)))
    if not has_active_list(node.cluster.plane.version):
        eventually(lambda: waits_for_release(node) or node.ready(), "the agent has looked", SECONDS)
        node.visible(node.create_pod("another", SMALL))
    node.wait_ready()
    assert sorted(node.slices().values()) == [("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 4)]


def waits_for_release(node: GpuNode) -> bool:
    found = apply.get(node.cluster.admin, f"/apis/gpuplan.dev/v1alpha1/gpupartitionplans/{node.name}")
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["reason"] == "WaitingForRelease" for each in conditions)


def test_devices_of_a_broken_gpu_go_to_no_further_pod(node: GpuNode) -> None:
    raw = node.create_pod("holder", HALF)
    held = node.visible(raw)
    uuid = machine.observe(node.machine)["gpus"][0]["uuid"]
    incidents.remap_rows(node.machine, uuid, failed=True)

    eventually(lambda: (node.allocatable(HALF), node.allocatable(SMALL)) == ("0", "0"), "nothing is left", SECONDS)
    status = apply.get(node.cluster.admin, f"{NODES}/{node.name}")["status"]
    assert (status["capacity"][HALF], status["capacity"][SMALL]) == ("1", "2")
    assert node.offered(HALF) == node.offered(SMALL) == ()
    assert node.visible(raw) == held
    assert not node.ready()

    incidents.remap_rows(node.machine, uuid)
    eventually(lambda: node.offers(SMALL, 2), "they are healthy again", SECONDS)
    node.wait_ready()


def test_a_force_deleted_pod_keeps_its_slice_while_its_container_runs(node: GpuNode) -> None:
    """The kubelet calls the device free at once; its container runs on for seconds."""
    raw = node.create_pod("stubborn", HALF, grace_seconds=2, unkillable_seconds="6")
    held = node.visible(raw)
    apply.delete(node.cluster.admin, f"{PODS}/stubborn", grace_seconds=0)
    node.write_plan(mig_item(("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 4)))

    def over() -> bool:
        running = node.kubelet.runtime.containers(raw["metadata"]["uid"])[-1].state == "running"
        there = held in node.slices()
        assert there or not running, "the slice went while its container ran"
        return not there

    eventually(over, "the slice is gone", SECONDS)
    node.wait_ready()


def test_mps_slices(node: GpuNode) -> None:
    ten, twenty = mps_resource_gb(10), mps_resource_gb(20)
    mps = {"index": 1, "mps": {"slices": [{"memoryGB": 10, "count": 2}, {"memoryGB": 20}]}}
    node.write_plan(FIRST_LAYOUT, mps)
    node.wait_ready()
    assert (node.allocatable(ten), node.allocatable(twenty), node.allocatable(SMALL)) == ("2", "1", "2")

    options = [node.wait_running(node.create_pod(f"mps-{n}", name)).options for n, name in enumerate((ten, twenty))]
    limits = [found.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for found in options]
    assert limits == ["0=9536M", "0=19073M"]
    for found in options:
        pipe = found.env["CUDA_MPS_PIPE_DIRECTORY"]
        (mount,) = [each for each in found.mounts if each.container_path == pipe]
        assert (mount.host_path, mount.read_only) == (pipe, True)
        assert found.env["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")
    assert options[0].env["CUDA_MPS_PIPE_DIRECTORY"] == options[1].env["CUDA_MPS_PIPE_DIRECTORY"]


def test_the_taint_is_gone_in_the_end(node: GpuNode) -> None:
    found = apply.get(node.cluster.admin, f"{NODES}/{node.name}")
    assert not found["spec"].get("taints")
    raw: Raw = node.create_pod("any", SMALL)
    assert node.visible(raw)

"""What a pod holds that was deleted by force while its process lives on, or whose container waits for its restart.

Each running container has a real process in a cgroup of its pod. The runtime below the kubelet is scripted: that is how
a process is left that nothing can kill.
"""

import time

import pytest

from kube import apply
from nodeagent.handover.config import PluginConfig, read_config
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, mig_item
from tests.e2e.kubelet.held import HALF, MINUTE, SMALL, for_a_while
from tests.e2e.kubelet.pod_processes import PodProcesses
from tests.waiting import eventually

LAYOUT = mig_item(("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4))
WITHOUT_HALF = mig_item(("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 4))
TIMERS_SECONDS = 15.0
"""Longer than grace period and slack together: what is held then is not held by time."""


@pytest.fixture
def processes(node: GpuNode) -> PodProcesses:
    assert node.processes is not None
    return node.processes


def config(node: GpuNode) -> PluginConfig:
    found = read_config(node.files)
    assert isinstance(found, PluginConfig)
    return found


def names(node: GpuNode) -> set[str]:
    return {pod["metadata"]["name"] for pod in apply.get(node.cluster.admin, PODS)["items"]}


def test_a_process_that_outlives_a_forced_deletion_keeps_its_slice(node: GpuNode, processes: PodProcesses) -> None:
    """The kubelet calls the device free at once. No grace period or slack lasts as long as the process."""
    first = node.create_pod("first", HALF, unkillable_seconds="inf")
    held, uid = node.visible(first), first["metadata"]["uid"]
    eventually(lambda: processes.of(uid), "its process runs")
    apply.delete(node.cluster.admin, f"{PODS}/first", grace_seconds=0)
    eventually(lambda: config(node).occupied == (held,), "the agent has noticed", SECONDS)
    eventually(lambda: node.offered(HALF) == (), "the kubelet has it on offer no more", SECONDS)
    second = node.create_pod("second", HALF, bound=True)
    node.write_plan(WITHOUT_HALF)

    def kept() -> None:
        assert processes.of(uid)
        assert held in node.slices()
        assert node.containers(first) == [("running", held)]
        assert node.containers(second) == []

    for_a_while(TIMERS_SECONDS + 20, kept)
    assert "held by pod default/first" in node.gpu_message()
    assert node.offered(HALF) == ()
    print(f"second pod: {node.phase(second)}; plan: {node.gpu_message()}")
    apply.delete(node.cluster.admin, f"{PODS}/second")
    (container,) = node.kubelet.runtime.containers(uid)
    node.kubelet.runtime.release(container.container_id)
    eventually(lambda: not processes.of(uid), "its process has ended")
    began = time.monotonic()
    eventually(node.ready, "the plan is carried out", MINUTE)
    assert held not in node.slices()
    print(f"free {time.monotonic() - began:.0f} s after the end of the process")


def test_a_pod_that_got_the_slice_of_a_living_process_waits_for_its_end(node: GpuNode, processes: PodProcesses) -> None:
    """Bound at once: the kubelet may give the device away before the agent has noticed."""
    first = node.create_pod("first", HALF, unkillable_seconds="inf")
    held, uid = node.visible(first), first["metadata"]["uid"]
    eventually(lambda: processes.of(uid), "its process runs")
    apply.delete(node.cluster.admin, f"{PODS}/first", grace_seconds=0)
    second = node.create_pod("second", HALF, bound=True)

    def apart() -> None:
        assert not (processes.of(uid) and "running" in dict(node.containers(second)))
        assert held in node.slices()

    for_a_while(TIMERS_SECONDS, apart)
    print(f"while the process lives: {node.phase(second)}, {node.containers(second)}")
    (container,) = node.kubelet.runtime.containers(uid)
    node.kubelet.runtime.release(container.container_id)
    began = time.monotonic()
    third = node.create_pod("third", HALF) if node.phase(second) == "Failed" else second
    eventually(lambda: node.containers(third) == [("running", held)], "the next pod runs", MINUTE)
    print(f"the next pod runs {time.monotonic() - began:.0f} s after the end of the process")


@pytest.mark.parametrize("end", ["finishes", "is deleted"])
def test_the_next_pod_waits_for_no_pod_that_has_ended(node: GpuNode, end: str) -> None:
    first = node.create_pod("first", HALF, runs_seconds=2.0 if end == "finishes" else None, exit_code="0")
    held = node.visible(first)
    if end == "finishes":
        eventually(lambda: node.phase(first) == "Succeeded", "the first one has finished", SECONDS)
    else:
        apply.delete(node.cluster.admin, f"{PODS}/first")
        eventually(lambda: "first" not in names(node), "the first one is gone", SECONDS)
    began = time.monotonic()
    second = node.create_pod("second", HALF, bound=True)
    eventually(lambda: node.containers(second) == [("running", held)], "the next one runs", MINUTE)
    print(f"the first one {end}: the next pod runs {time.monotonic() - began:.1f} s after its creation")


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_a_holder_that_waits_for_its_restart_when_the_kubelet_starts(node: GpuNode, checkpoint: str) -> None:
    """As docs/operating.md has it: the kubelet refuses it, unless a device is healthy by then."""
    other = node.create_pod("other", SMALL)
    others = node.visible(other)
    holder = node.create_pod("holder", SMALL, restart_policy="Always", runs_seconds=0.2, exit_code="1")
    eventually(lambda: len(node.containers(holder)) > 1, "its container was started again", SECONDS)
    (held,) = {device for _, device in node.containers(holder)}
    eventually(lambda: node.containers(holder)[-1] == ("exited", held), "it waits", SECONDS)
    node.kubelet.kill()
    if checkpoint == "lost":
        node.kubelet.paths.checkpoint.unlink()
    node.kubelet.start()
    began = time.monotonic()

    def kept() -> None:
        assert {held, others} <= node.slices().keys()
        # A kubelet that admits it before the plugin has registered starts its container again, without a device.
        without = {("exited", ""), ("running", "")} if checkpoint == "lost" else set[tuple[str, str]]()
        assert {device for _, device in {*node.containers(holder)} - without} == {held}
        assert {device for _, device in node.containers(other)} == {others}
        # A kubelet without records counts its pods against what is healthy, and ends those for which that is too few.
        assert checkpoint == "lost" or node.containers(other) == [("running", others)]

    for_a_while(TIMERS_SECONDS, kept)
    status = apply.get(node.cluster.admin, f"{PODS}/holder")["status"]
    for name in ("other", "holder"):
        print(f"checkpoint {checkpoint}, {name}: {apply.get(node.cluster.admin, f'{PODS}/{name}')['status']}")
    refused = checkpoint == "lost" and "" not in {device for _, device in node.containers(holder)}
    if refused or status["phase"] == "Failed":
        assert status["phase"] == "Failed"
        assert status["reason"] in ("UnexpectedAdmissionError", f"OutOf{SMALL}")
    apply.delete(node.cluster.admin, f"{PODS}/holder")
    if checkpoint == "lost":
        # Where the kubelet did not end it, it lists it without its device, and the others of the resource are unknown.
        apply.delete(node.cluster.admin, f"{PODS}/other")
    eventually(lambda: held in node.offered(SMALL), "its slice is on offer again", MINUTE, seen=node.gpu_message)
    print(f"checkpoint {checkpoint}: on offer {time.monotonic() - began:.0f} s after the kubelet's start")

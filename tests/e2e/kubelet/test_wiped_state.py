"""What a pod holds while the node's state directory is wiped: given once, kept whole, and free when the pod has ended.

Each running container has a real process in a cgroup of its pod. The plan needs everything gone that is on the GPU.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from crds.v1alpha1 import names
from kube import apply
from partitioning.resources import mig_resource
from tests.e2e.fleet import daemon_pod
from tests.e2e.kubelet.gpu_node import PODS, SECONDS, GpuNode, mig_item
from tests.e2e.kubelet.held import HALF, MINUTE, for_a_while
from tests.e2e.real_cluster import AGENT, MERGE, call
from tests.waiting import eventually

LAYOUT = mig_item(("1g.10gb", 0), ("3g.40gb", 4))
ALL_ELSE = mig_item(("7g.80gb", 0))
TIMERS_SECONDS = 12.0
"""Longer than grace period and slack together: what is held then is not held by time."""


@pytest.mark.parametrize("meanwhile", ["run", "are killed", "are away"])
def test_a_wiped_state_directory_costs_no_holder_its_slice(node: GpuNode, meanwhile: str) -> None:
    first = node.create_pod("first", HALF)
    held = node.visible(first)
    if meanwhile == "are away":
        for name in ("agent", "plugin"):
            node.supervisor.remove(name)
    wipe(node)
    if meanwhile == "are away":
        node.start_plugin()
        node.start_agent()
    if meanwhile == "are killed":
        for name in ("agent", "plugin"):
            pid = node.supervisor.children[name].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
    node.write_plan(ALL_ELSE)
    began = time.monotonic()
    second = node.create_pod("second", HALF, bound=True)

    def once() -> None:
        assert held in node.slices()
        assert node.containers(first) == [("running", held)]
        assert node.containers(second) == []

    def settled() -> bool:
        once()
        return list(node.slices()) == [held] and "held by pod default/first" in node.gpu_message()

    eventually(settled, "what is free goes, and the plan names the holder alone", MINUTE, seen=node.gpu_message)
    print(f"programs {meanwhile}: no doubt {time.monotonic() - began:.0f} s after the wipe")
    while time.monotonic() - began < TIMERS_SECONDS:
        once()
        time.sleep(0.2)
    apply.delete(node.cluster.admin, f"{PODS}/first")
    began = time.monotonic()
    eventually(node.ready, "the plan is carried out", MINUTE)
    assert sorted(node.slices().values()) == [("7g.80gb", 0)]
    print(f"programs {meanwhile}: Ready {time.monotonic() - began:.0f} s after the deletion")


@pytest.mark.parametrize("reported", [True, False], ids=["", "and the API shows its pod as not started"])
def test_a_node_that_lost_every_record_and_the_kubelets_too_gives_nothing_away(node: GpuNode, reported: bool) -> None:
    """No file names the holder's slice any more: neither ours, which are wiped, nor the kubelet's checkpoint."""
    with ExitStack() as until:
        if not reported:
            until.enter_context(no_pod_is_reported(node))
        first = node.create_pod("first", HALF)
        eventually(lambda: "running" in dict(node.containers(first)), "its container runs", SECONDS)
        ((_, held),) = node.containers(first)
        if reported:
            node.wait_running(first)
        else:
            assert node.phase(first) == "Pending"
        for name in ("agent", "plugin"):
            node.supervisor.remove(name)
        node.kubelet.kill()
        node.kubelet.paths.checkpoint.unlink()
        wipe(node)
        node.kubelet.start()
        node.start_plugin()
        node.start_agent()
        second = node.create_pod("second", HALF, bound=True)
        named = f"pod default/first {'runs' if reported else 'may run'}, and no record names its devices"

        def once() -> None:
            assert held in node.slices()
            assert held not in node.offered(HALF)
            assert node.containers(first) == [("running", held)]
            assert node.containers(second) == []

        def named_it() -> bool:
            once()
            return named in node.gpu_message()

        node.write_plan(ALL_ELSE)
        eventually(named_it, "the plan names the holder", SECONDS, seen=node.gpu_message)
        for_a_while(TIMERS_SECONDS, once)
    apply.delete(node.cluster.admin, f"{PODS}/first")
    began = time.monotonic()
    eventually(node.ready, "the plan is carried out", SECONDS)
    assert sorted(node.slices().values()) == [("7g.80gb", 0)]
    eventually(lambda: node.offers(mig_resource("7g.80gb"), 1), "what was held is on offer again", SECONDS)
    print(f"all lost: on offer again {time.monotonic() - began:.0f} s after the deletion")


@contextmanager
def no_pod_is_reported(node: GpuNode) -> Iterator[None]:
    """The API server refuses what the kubelet writes of pods, so that each looks as the scheduler bound it."""
    admission = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    mine = f"request.userInfo.username == 'system:node:{node.name}'"
    resources = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}]
    policy = {
        "matchConstraints": {"resourceRules": resources},
        "matchConditions": [{"name": "mine", "expression": mine}],
        "validations": [{"expression": "false"}],
    }
    binding = {"policyName": "unreported", "validationActions": ["Deny"]}
    made = (("ies", "", policy), ("ybindings", "Binding", binding))
    pod = daemon_pod(node.cluster, AGENT, node.name)
    assert pod is not None
    status = f"/api/v1/namespaces/{names.NAMESPACE}/pods/{pod['metadata']['name']}/status"
    kubelet = node.cluster.kubelet(node.name)
    for path, kind, spec in made:
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"ValidatingAdmissionPolicy{kind}",
            "metadata": {"name": "unreported"},
            "spec": spec,
        }
        apply.create(node.cluster.admin, admission + path, body)
    try:
        refused = {"status": {"message": "from a test"}}
        eventually(
            lambda: not call(kubelet, "PATCH", status, refused, MERGE, dryRun="All").allowed, "it is in force", SECONDS
        )
        yield
    finally:
        for path, _, _ in made:
            apply.delete(node.cluster.admin, f"{admission}{path}/unreported")


def wipe(node: GpuNode) -> None:
    for path in node.files.directory.parent.iterdir():
        # The programs may write meanwhile.
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

"""The product on a real control plane when something breaks, and what a person reads meanwhile.

An agent falls silent, a plan names a missing node, a GPU is lost under a pod, the last partition is destroyed, a
Deployment requests more than there is. One cluster serves all tests; each has nodes of its own, chosen by a label, and
a recorder keeps every watch event of the plans, so that "never" means every event.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from crds.v1alpha1 import names
from kube import apply
from kube.reflector import Reflector
from sandbox.cluster import Cluster, ClusterSettings
from sandbox.driver import machine
from tests import incidents
from tests.e2e.real_cluster import LEASES, NODES, PLANS, call
from tests.e2e.recovery import (
    GPUS,
    PODS,
    PlanVersions,
    add_pod,
    await_ready,
    await_running,
    conditions,
    gpu_node,
    kstatus,
    partitions,
    pod_spec,
    ready,
    runs,
    wait_for,
)
from tests.e2e.rig.controlplane import Binaries, RealControlPlane
from tests.e2e.rig.controlplane.tenants import RealServers
from tests.e2e.test_scenarios import SETTLE_SECONDS
from tests.waiting import eventually

EVENTS = "/api/v1/namespaces/default/events"


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def cluster(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    plane = RealControlPlane(programs, directory=tmp_path_factory.mktemp("plane"))
    settings = ClusterSettings(controller={"orphanPlanSeconds": 20, "planReturnSeconds": 5})
    found = Cluster(settings, control_plane=RealServers(plane))
    try:
        found.start([gpu_node(name, count) for name, count in GPUS.items()])
        eventually(lambda: len(found.plans()) == len(GPUS), "a plan for every node", SETTLE_SECONDS)
        for name in GPUS:
            await_ready(found, name)
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def recorder(cluster: Cluster) -> Iterator[PlanVersions]:
    found = PlanVersions()
    watch = Reflector(cluster.api, PLANS, project=lambda plan: plan, on_change=found.on_change)
    watch.start()
    yield found
    watch.stop()


@pytest.mark.timeout(900)
def test_an_agent_stopped_for_75_seconds_turns_ready_once_each_way(cluster: Cluster, recorder: PlanVersions) -> None:
    add_pod(cluster, "silent-pod", "silent", "nvidia.com/mig-1g.10gb")
    await_running(cluster, "silent-pod")
    await_ready(cluster, "silent")
    pid = cluster.supervisor.children["agent-silent"].pid
    assert pid
    began = time.monotonic()
    before = conditions(apply.get(cluster.api, f"{PLANS}/silent"))["Ready"]["status"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(75, began)
        assert ready(cluster, "silent") == "Unknown"
    finally:
        os.kill(pid, signal.SIGCONT)
    back = time.monotonic()
    await_ready(cluster, "silent")
    wait_for(20, back)
    versions = recorder.since(began, "silent")
    statuses = [before, *(conditions(each)["Ready"]["status"] for each in versions)]
    changes = [f"{old}->{new}" for old, new in pairwise(statuses) if old != new]
    print(f"\nReady of the stopped agent's plan: {changes}, {len(versions)} versions")
    assert changes == ["True->Unknown", "Unknown->True"]
    lies = [each for each in versions if _says_ready_without_agent(each)]
    assert lies == []


def _says_ready_without_agent(plan: Mapping[str, Any]) -> bool:
    found = conditions(plan)
    return (found["Ready"]["status"], found["AgentAlive"]["status"]) == ("True", "False")


def test_a_plan_for_a_missing_node_is_never_current(cluster: Cluster, recorder: PlanVersions) -> None:
    spec = {"nodeName": "missing", "gpus": [{"index": 0, "mig": {"instances": []}}]}
    plan = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "missing"}, "spec": spec}
    began = time.monotonic()
    readings: Counter[str] = Counter([kstatus(apply.create(cluster.api, PLANS, plan))])
    eventually(lambda: ready(cluster, "missing") == "Unknown", "Ready says that there is no such Node", 15)
    print(f"\nReady=Unknown after {time.monotonic() - began:.1f} s")
    while time.monotonic() - began < 75:
        readings[kstatus(apply.get(cluster.api, f"{PLANS}/missing"))] += 1
        time.sleep(0.2)  # the pace of a reader, not a wait for something
    readings.update(kstatus(each) for each in recorder.since(began, "missing"))
    print(f"kstatus of a plan without a Node: {dict(readings)}")
    assert readings.keys() == {"InProgress"}
    found = conditions(apply.get(cluster.api, f"{PLANS}/missing"))["Ready"]
    assert (found["status"], found["reason"]) == ("Unknown", "NodeNotFound")


def test_a_deleted_node_turns_its_plan_within_seconds(cluster: Cluster, recorder: PlanVersions) -> None:
    await_ready(cluster, "leaving")
    began = time.monotonic()
    apply.delete(cluster.api, f"{NODES}/leaving")
    eventually(lambda: ready(cluster, "leaving") == "Unknown", "Ready says that the Node is gone", 15)
    print(f"\nReady=Unknown {time.monotonic() - began:.1f} s after the Node was deleted")
    wait_for(20, began)
    statuses = [conditions(each)["Ready"]["status"] for each in recorder.since(began, "leaving")]
    changes = [f"{old}->{new}" for old, new in pairwise(["True", *statuses]) if old != new]
    assert changes == ["True->Unknown"]


def test_nothing_of_a_node_that_is_gone_stays_and_it_may_return_under_its_name(cluster: Cluster) -> None:
    left = (f"{PLANS}/returning", f"{LEASES}/{names.agent_lease('returning')}")

    def found() -> set[int]:
        return {call(cluster.api, "GET", path).status for path in left}

    await_ready(cluster, "returning")
    assert found() == {200}
    apply.delete(cluster.api, f"{NODES}/returning")
    eventually(lambda: found() == {404}, "plan and Lease are gone", 90)
    cluster.create(gpu_node("returning", 1))
    eventually(lambda: found() == {200}, "both are there again", SETTLE_SECONDS)
    await_ready(cluster, "returning")
    others = {lease["metadata"]["name"] for lease in apply.get(cluster.api, LEASES)["items"]}
    assert {names.CONTROLLER_LEASE, names.agent_lease("steady")} <= others


@pytest.mark.timeout(900)
def test_a_gpu_lost_under_a_pod_for_two_minutes_costs_at_most_one_plan_write(cluster: Cluster) -> None:
    add_pod(cluster, "unlucky", "lossy", "nvidia.com/mig-3g.40gb")
    await_running(cluster, "unlucky")
    await_ready(cluster, "lossy")
    hardware = cluster.nodes["lossy"].machine
    (lost,) = [gpu["uuid"] for gpu in machine.observe(hardware)["gpus"] if gpu["processes"]]
    before = generation(cluster, "lossy")
    incidents.lose(hardware, lost)
    began = time.monotonic()
    eventually(lambda: ready(cluster, "lossy") != "True", "the plan says so")
    wait_for(60, began)
    alone = generation(cluster, "lossy") - before
    add_pod(cluster, "neighbour", "lossy", "nvidia.com/mig-7g.80gb")
    add_pod(cluster, "elsewhere", "steady", "nvidia.com/mig-1g.10gb")
    await_running(cluster, "neighbour", "elsewhere")
    wait_for(120, began)
    after = generation(cluster, "lossy") - before - alone
    print(f"\nspec writes: {alone} while the GPU was lost, {after} with the other GPU planned for a new pod")
    assert alone <= 1
    assert after == 1
    assert runs(cluster, "unlucky"), "its container is not ours to end"


def generation(found: Cluster, plan: str) -> int:
    """It moves with each write of the spec."""
    return int(apply.get(found.api, f"{PLANS}/{plan}")["metadata"]["generation"])


def test_the_destruction_of_the_last_partition_is_reported(cluster: Cluster) -> None:
    path = f"{PLANS}/last"
    pins = {"mode": "Manual", "gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "count": 1}]}}]}
    apply.merge_patch(cluster.api, path, {"spec": pins})
    eventually(lambda: partitions(cluster, "last") == ["nvidia.com/mig-1g.10gb"], "the instance", SETTLE_SECONDS)
    await_ready(cluster, "last")
    body = {"spec": {"gpus": [{"index": 0, "mig": {"instances": []}}]}}
    began = time.monotonic()
    generation = apply.merge_patch(cluster.api, path, body)["metadata"]["generation"]

    def reported() -> bool:
        plan = apply.get(cluster.api, path)
        found = conditions(plan)["Ready"]
        confirmed = found["status"] == "True" and found["observedGeneration"] == generation
        return confirmed and plan["status"]["observedGeneration"] == generation and not partitions(cluster, "last")

    eventually(reported, "status says that nothing is left", 30)
    print(f"\nstatus right after {time.monotonic() - began:.1f} s")


@pytest.mark.timeout(900)
def test_a_deployment_of_20_where_14_fit_gets_at_most_two_events_per_pod(cluster: Cluster) -> None:
    labels = {"app": "crowd"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec("full", "nvidia.com/mig-1g.10gb")}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "crowd"},
        "spec": {"replicas": 20, "selector": {"matchLabels": labels}, "template": template},
    }
    template["spec"].pop("terminationGracePeriodSeconds")
    began = time.monotonic()
    apply.create(cluster.api, DEPLOYMENTS, deployment)
    eventually(lambda: len(crowd(cluster, "Running")) == 14, "14 pods run", SETTLE_SECONDS)
    wait_for(180, began)
    waiting = crowd(cluster, "Pending")
    assert len(waiting) == 6
    quiet = {name: pod_events(cluster, name) for name in waiting}
    for name, events in quiet.items():
        print(f"\n{name}: " + " | ".join(f"{each['reason']} x{each.get('count', 1)}" for each in events))
        assert len(events) <= 2, events
    cordon(cluster, "full", True)
    eventually(lambda: reasons(cluster, waiting) == {"FilteredByScheduler"}, "the cordon is the reason", SETTLE_SECONDS)
    cordon(cluster, "full", False)
    eventually(lambda: reasons(cluster, waiting) == {"WaitsForRelease"}, "the holders are the reason", SETTLE_SECONDS)
    eventually(lambda: last_reasons(cluster, waiting) == {"WaitsForRelease"}, "the last Event of each says so")
    for name in waiting:
        print(f"{name}: {pod_events(cluster, name)[-1]['message']}")


def crowd(found: Cluster, phase: str) -> list[str]:
    pods = apply.get(found.api, PODS, query={"labelSelector": "app=crowd"})["items"]
    return sorted(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == phase)


def pod_events(found: Cluster, pod: str) -> list[dict[str, Any]]:
    """What gpuplan's controller wrote about the pod, the latest message last."""
    events = apply.get(found.api, EVENTS, query={"fieldSelector": f"involvedObject.name={pod}"})["items"]
    ours = [each for each in events if "gpuplan" in (each.get("reportingComponent") or str(each.get("source")))]
    return sorted(ours, key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")


def last_reasons(found: Cluster, pods: list[str]) -> set[str]:
    """The reasons of the newest Events of these pods."""
    return {str(pod_events(found, pod)[-1]["reason"]) for pod in pods}


def reasons(found: Cluster, pods: list[str]) -> set[str]:
    listed = (found.decisions() or {}).get("pods", [])
    return {str(each["reason"]) for each in listed if any(pod in str(each) for pod in pods)}


def cordon(found: Cluster, node: str, on: bool) -> None:
    apply.merge_patch(found.api, f"{NODES}/{node}", {"spec": {"unschedulable": on}})

"""kill -9 of the controller and of an agent in the middle of a run: it converges, and no used instance is touched.

So it does when a Node is deleted in the middle. The e2e suite runs these on a real control plane, too.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube import apply
from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from sandbox.driver import machine
from sandbox.settle import settlement
from tests.drawn import thorough
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SURVIVORS = Path(__file__).parents[2] / "examples" / "survivors"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.stop()


def kill(cluster: Cluster, name: str) -> None:
    child = cluster.supervisor.children[name]
    before = child.restarts
    pid = child.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: child.restarts > before and child.pid, f"{name} is started again")


def running(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods() if pod.get("status", {}).get("phase") == "Running"}


def states(cluster: Cluster) -> set[str]:
    return {gpu["state"] for plan in cluster.plans() for gpu in plan.get("status", {}).get("gpus", [])}


def used_instances(cluster: Cluster) -> dict[int, tuple[str, Any]]:
    """What the driver knows of every GPU instance with a process in it, by process id."""
    node = cluster.nodes["old-node"]
    state = machine.observe(node.machine)
    found = {}
    for gpu in state["gpus"]:
        instances = {instance["id"]: instance for instance in gpu["gpu_instances"]}
        for process in gpu["processes"]:
            found[process["pid"]] = (gpu["uuid"], instances[process["gpu_instance"] or 0])
    return found


def settled(cluster: Cluster) -> bool:
    decisions = cluster.decisions()
    return settlement(cluster.pods(), cluster.plans(), decisions).settled


@pytest.mark.parametrize("moment", thorough("planned", "withdrawing", "advertising"))
def test_killed_controller_and_agent_converge_without_touching_what_is_used(cluster: Cluster, moment: str) -> None:
    manifests = load([str(SURVIVORS)])
    old = [body for body in manifests if body["kind"] != "Pod" or body["spec"].get("nodeName")]
    new = [body for body in manifests if body not in old]
    cluster.start(old)
    eventually(lambda: running(cluster) == {"old-training", "old-inference"}, "the old pods run")
    eventually(lambda: settled(cluster), "their instances are known")
    before = used_instances(cluster)
    assert len(before) == 2
    for pod in new:
        cluster.create(pod)

    eventually(lambda: any(plan["spec"].get("planned") for plan in cluster.plans()), "a plan is written")
    if moment == "withdrawing":
        eventually(lambda: states(cluster) & {"Changing", "Advertising", "Ready"}, "the agent changes something")
    elif moment == "advertising":
        eventually(lambda: states(cluster) & {"Advertising", "Ready"}, "the agent has cut")
    kill(cluster, "agent-old-node")
    kill(cluster, "controller")
    eventually(lambda: "new-inference" in running(cluster), "the new pod runs", seconds=90)
    eventually(lambda: settled(cluster), "everything is settled", seconds=60)

    after = used_instances(cluster)
    assert {pid: after[pid] for pid in before} == before
    assert running(cluster) == {"old-training", "old-inference", "new-inference"}


@pytest.mark.thorough
def test_a_node_deleted_in_mid_change_and_back(cluster: Cluster) -> None:
    """The same machine: what was half done there is found, and the pod that it was for runs."""
    manifests = load([str(SURVIVORS)])
    (node,) = [body for body in manifests if body["kind"] == "Node"]
    (pod,) = [body for body in manifests if body["metadata"]["name"] == "new-inference"]
    cluster.start([node])
    eventually(lambda: settled(cluster), "what is on the node is known")
    cluster.create(pod)
    eventually(lambda: any(plan["spec"].get("planned") for plan in cluster.plans()), "a plan is written")

    apply.delete(cluster.api, "/api/v1/nodes/old-node")
    eventually(lambda: "old-node" not in cluster.nodes, "it is powered off")
    cluster.create(node)

    eventually(lambda: running(cluster) == {"new-inference"}, "the pod runs", seconds=90)
    eventually(lambda: settled(cluster), "everything is settled", seconds=60)
    assert len(used_instances(cluster)) == 1

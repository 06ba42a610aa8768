"""Faults of real clusters: rival and frozen controllers, a long outage, a CRD that grows, a Node that comes back.

The audit log distinguishes two controllers by their tokens, although they are one account. Runs on the fixtures of
test_scenarios: a control plane of each test's own, every right as deploy/ gives it.
"""

import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.v1alpha1 import names
from deploy.generate.crd import definition
from kube import apply
from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from sandbox.control_plane import Role
from sandbox.driver import machine
from tests.e2e.real_cluster import CRDS, NODES, PLANS, quietly
from tests.e2e.rig.controlplane.audit import audited
from tests.e2e.rig.controlplane.plane import API_SERVER
from tests.e2e.rig.controlplane.tenants import RealServers
from tests.e2e.test_scenarios import SETTLE_SECONDS, cluster, said, servers, start, starts
from tests.sandbox.test_crashes import SURVIVORS, running, settled
from tests.waiting import eventually

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.CONTROLLER_LEASE}"
CREDENTIAL = "authentication.kubernetes.io/credential-id"
PODS = "/api/v1/namespaces/default/pods"
RIVAL = "controller-2"
__all__ = ["cluster", "said", "servers", "starts"]  # fixtures


def add_rival(found: Cluster, base: RealServers) -> None:
    """A second replica, with a token of its own."""
    settings = yaml.safe_load((found.directory / "controller.yaml").read_text())
    config = found.directory / f"{RIVAL}.yaml"
    config.write_text(yaml.safe_dump({**settings, "metricsPort": 0}))
    kubeconfig = found.directory / f"{RIVAL}.kubeconfig"
    kubeconfig.write_text(base.kubeconfig(Role.CONTROLLER))
    found.supervisor.add(RIVAL, "controller", ["--config", str(config), "--kubeconfig", str(kubeconfig)])


def leader(found: Cluster) -> str:
    """The holder of the Lease."""
    return str(apply.get(found.api, LEASE)["spec"].get("holderIdentity") or "")


def spec_writes(log: Path) -> list[tuple[str, str, int]]:
    """Plan, token and answer of each write to a plan's spec, in the order of the answers."""
    return [
        (event["objectRef"]["name"], event["user"]["extra"][CREDENTIAL][0], event["responseStatus"]["code"])
        for event in audited(log)
        if event["verb"] == "patch"
        and event["objectRef"].get("resource") == names.PLURAL
        and "subresource" not in event["objectRef"]
    ]


def writers(log: Path) -> dict[str, list[str]]:
    """Tokens of the accepted writes to each plan's spec, in order."""
    found: dict[str, list[str]] = {}
    for plan, token, code in spec_writes(log):
        if code == 200:
            found.setdefault(plan, []).append(token)
    return found


def test_two_controllers_and_one_of_them_writes(cluster: Cluster, servers: RealServers, tmp_path: Path) -> None:
    manifests = load([str(SURVIVORS.parent / "mig")])
    pods = [body for body in manifests if body["kind"] == "Pod"]
    cluster.start([body for body in manifests if body["kind"] != "Pod"])
    add_rival(cluster, servers)
    eventually(lambda: len(cluster.plans()) == 3, "the plans")
    for pod in pods:
        cluster.create(pod)
    wanted = {pod["metadata"]["name"] for pod in pods}
    eventually(lambda: running(cluster) == wanted, "all pods run", SETTLE_SECONDS)
    log = tmp_path / "audit.log"
    assert len({token for tokens in writers(log).values() for token in tokens}) == 1
    assert apply.get(cluster.api, LEASE)["spec"]["leaseTransitions"] == 0
    assert len(candidates(log)) == 2, "both want to lead"


def candidates(log: Path) -> set[str]:
    """Tokens of the controllers that read the Lease."""
    return {
        event["user"]["extra"][CREDENTIAL][0]
        for event in audited(log)
        if event["objectRef"].get("name") == names.CONTROLLER_LEASE and event["verb"] == "get"
    }


def test_an_api_server_that_is_away_for_longer_than_a_lease(
    cluster: Cluster, servers: RealServers, starts: list[tuple[datetime, datetime]]
) -> None:
    """The leader gives up, the agents do not; running pods run on, and a new one gets a slice."""
    wanted = start(cluster, "mig")
    # A refusal of kube-scheduler that is lost on its way to the API is repeated minutes later.
    eventually(lambda: len(running(cluster)) > 0, "a pod runs", SETTLE_SECONDS)
    agents = {name: child.pid for name, child in cluster.supervisor.children.items() if name.startswith("agent-")}
    held = used(cluster)
    killed_at = datetime.now(UTC)
    servers.plane.parts[API_SERVER].kill()
    eventually(lambda: cluster.supervisor.children["controller"].restarts > 0, "the leader gives up", SETTLE_SECONDS)
    assert held.items() <= used(cluster).items()
    servers.plane.restart(API_SERVER)
    starts.append((killed_at, datetime.now(UTC)))
    eventually(lambda: quietly(lambda: running(cluster)) == wanted, "all pods run", SETTLE_SECONDS)
    eventually(lambda: quietly(lambda: settled(cluster)), "everything is settled", SETTLE_SECONDS)
    assert held.items() <= used(cluster).items(), "no instance in use was touched"
    assert agents == {name: cluster.supervisor.children[name].pid for name in agents}

    leaves, comes = of_example("infer-a"), "infer-later"
    apply.delete(cluster.api, f"{PODS}/infer-a")
    cluster.create({**leaves, "metadata": {"name": comes}})
    eventually(lambda: comes in running(cluster), "work goes on", SETTLE_SECONDS)


def of_example(name: str) -> dict[str, Any]:
    """As in the example."""
    return next(body for body in load([str(SURVIVORS.parent / "mig")]) if body["metadata"]["name"] == name)


def used(found: Cluster) -> dict[tuple[str, int], Any]:
    """GPU and instance of every process on simulated hardware; each node counts its processes by itself."""
    return {
        (name, process["pid"]): (gpu["uuid"], process["gpu_instance"])
        for name, node in found.nodes.items()
        if node.has_gpus
        for gpu in machine.observe(node.machine)["gpus"]
        for process in gpu["processes"]
    }


@pytest.mark.parametrize("frozen_after", ["pods", "plan"])
def test_a_frozen_leader_writes_nothing_after_its_successor(
    cluster: Cluster, servers: RealServers, tmp_path: Path, frozen_after: str
) -> None:
    wanted = start(cluster, "mig")
    first = leader(cluster)
    add_rival(cluster, servers)
    if frozen_after == "plan":
        eventually(lambda: any(plan["spec"].get("planned") for plan in cluster.plans()), "a plan is written")
    pid = cluster.supervisor.children["controller"].pid
    assert pid
    _signal(pid, signal.SIGSTOP)
    try:
        eventually(lambda: leader(cluster) not in ("", first), "the other controller leads")
        eventually(lambda: running(cluster) == wanted, "all pods run", SETTLE_SECONDS)
    finally:
        _signal(pid, signal.SIGCONT)
    # It finds its Lease lost and ends; its supervisor starts it again, as a Deployment would.
    eventually(lambda: cluster.supervisor.children["controller"].restarts > 0, "the old leader ends")
    for plan, tokens in writers(tmp_path / "audit.log").items():
        changes = sum(1 for before, after in pairwise(tokens) if before != after)
        assert changes <= 1, f"{plan}: written in turns by {tokens}"


def _signal(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


def test_a_crd_that_grows_under_stored_objects(cluster: Cluster) -> None:
    start(cluster, "manual")
    eventually(lambda: settled(cluster), "everything is settled", SETTLE_SECONDS)
    grown: dict[str, Any] = definition()
    version = grown["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["note"] = {"type": "string", "maxLength": 64, "description": "Something new."}
    version["additionalPrinterColumns"].append({"name": "Note", "type": "string", "jsonPath": ".spec.note"})
    path = f"{PLANS}/gpu-node-1"
    stored = apply.get(cluster.api, path)
    crd = f"{CRDS}/{names.PLURAL}.{names.GROUP}"
    apply.apply(cluster.api, crd, grown, manager="upgrade", force=True)
    eventually(
        lambda: apply.merge_patch(cluster.api, path, {"spec": {"note": "grown"}})["spec"].get("note"), "the new field"
    )
    # An old field still works, and the agent still answers each generation.
    apply.merge_patch(cluster.api, path, {"spec": {"gpus": [{"index": 0, "mig": {"instances": []}}]}})
    generation = apply.get(cluster.api, path)["metadata"]["generation"]
    eventually(lambda: _observed(cluster, "gpu-node-1") == generation, "the agent has read it", SETTLE_SECONDS)
    after = apply.get(cluster.api, path)
    assert after["spec"]["note"] == "grown", "programs that do not know the new field leave it alone"
    assert after["metadata"]["uid"] == stored["metadata"]["uid"]
    # And back, as when an upgrade is undone: the field is removed, the object still works.
    apply.apply(cluster.api, crd, definition(), manager="upgrade", force=True)
    eventually(lambda: "note" not in apply.get(cluster.api, path)["spec"], "the old schema")
    apply.merge_patch(cluster.api, path, {"spec": {"gpus": stored["spec"]["gpus"]}})
    generation = apply.get(cluster.api, path)["metadata"]["generation"]
    eventually(lambda: _observed(cluster, "gpu-node-1") == generation, "the agent has read that, too", SETTLE_SECONDS)
    eventually(lambda: settled(cluster), "everything is settled", SETTLE_SECONDS)


def _observed(found: Cluster, name: str) -> int | None:
    status: Mapping[str, Any] = apply.get(found.api, f"{PLANS}/{name}").get("status") or {}
    generation = status.get("observedGeneration")
    return int(generation) if generation is not None else None


def test_a_node_deleted_and_back_at_once_keeps_its_pins(cluster: Cluster) -> None:
    start(cluster, "manual")
    eventually(lambda: settled(cluster), "everything is settled", SETTLE_SECONDS)
    path = f"{PLANS}/gpu-node-1"
    before = apply.get(cluster.api, path)
    assert before["spec"]["gpus"], "there are pins"
    hardware = instances(cluster, "gpu-node-1")
    assert hardware
    manifest = next(body for body in load([str(SURVIVORS.parent / "manual")]) if body["kind"] == "Node")
    old_uid = apply.get(cluster.api, f"{NODES}/gpu-node-1")["metadata"]["uid"]
    apply.delete(cluster.api, f"{NODES}/gpu-node-1")
    cluster.create(manifest)
    new_uid = apply.get(cluster.api, f"{NODES}/gpu-node-1")["metadata"]["uid"]
    assert new_uid != old_uid
    # While the Node is gone the agent knows no uid, and reports none.
    eventually(
        lambda: apply.get(cluster.api, path)["status"]["node"].get("uid") == new_uid,
        "the agent is back",
        SETTLE_SECONDS,
    )
    eventually(lambda: ready(cluster, path), "the plan is Ready for the new Node", SETTLE_SECONDS)
    after = apply.get(cluster.api, path)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    # The machine may still be on its way back: the sandbox may see the Node late.
    eventually(lambda: "gpu-node-1" in cluster.nodes, "the machine is back", SETTLE_SECONDS)
    assert instances(cluster, "gpu-node-1") == hardware, "the same instances, not new ones like them"


def instances(found: Cluster, node: str) -> list[Any]:
    """Every instance of a node's GPUs, as the simulated driver keeps it."""
    state = machine.observe(found.nodes[node].machine)
    return [(gpu["uuid"], instance) for gpu in state["gpus"] for instance in gpu["gpu_instances"]]


def ready(found: Cluster, path: str) -> bool:
    """The plan's newest generation is carried out."""
    plan = apply.get(found.api, path)
    conditions = {each["type"]: each for each in plan["status"]["conditions"]}
    return {conditions[kind]["status"] for kind in ("Ready", "AgentAlive")} == {"True"}

"""Faults of real clusters: rival and frozen controllers, a CRD that grows, a Node that comes back.

The audit log tells two controllers apart by their tokens, although they are one account. Runs on the fixtures of
test_scenarios: a control plane of each test's own, every right as deploy/ gives it.
"""

import os
import signal
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.manifests import load
from crds.definition import definition
from crds.v1alpha1 import names
from kube import apply
from sandbox.cluster import Cluster
from sandbox.controlplane.seam import Role
from sandbox.controlplane.tenants import RealServers
from tests.e2e.real_cluster import CRDS, NODES, PLANS, eventually
from tests.e2e.test_scenarios import SETTLE_SECONDS, audited, cluster, servers, start, starts
from tests.sandbox.test_crashes import SURVIVORS, running, settled

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.CONTROLLER_LEASE}"
CREDENTIAL = "authentication.kubernetes.io/credential-id"
RIVAL = "controller-2"
__all__ = ["cluster", "servers", "starts"]  # fixtures


def add_rival(found: Cluster, base: RealServers) -> None:
    """A second replica, with a token of its own."""
    settings = yaml.safe_load((found.directory / "controller.yaml").read_text())
    config = found.directory / f"{RIVAL}.yaml"
    config.write_text(yaml.safe_dump({**settings, "metricsPort": 0}))
    kubeconfig = found.directory / f"{RIVAL}.kubeconfig"
    kubeconfig.write_text(base.kubeconfig(Role.CONTROLLER))
    found.supervisor.add(RIVAL, "controller", ["--config", str(config), "--kubeconfig", str(kubeconfig)])


def leader(found: Cluster) -> str:
    """Who holds the Lease."""
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
    assert len({token for tokens in writers(tmp_path / "audit.log").values() for token in tokens}) == 1
    assert apply.get(cluster.api, LEASE)["spec"]["leaseTransitions"] == 0


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
    # It finds its Lease lost and ends; its supervisor starts it anew, as a Deployment would.
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
    apply.apply(cluster.api, f"{CRDS}/{names.PLURAL}.{names.GROUP}", grown, manager="upgrade", force=True)
    path = f"{PLANS}/gpu-node-1"
    eventually(
        lambda: apply.merge_patch(cluster.api, path, {"spec": {"note": "grown"}})["spec"].get("note"), "the new field"
    )
    # An old field still works, and the agent still answers each generation.
    apply.merge_patch(cluster.api, path, {"spec": {"gpus": [{"index": 0, "mig": {"instances": []}}]}})
    generation = apply.get(cluster.api, path)["metadata"]["generation"]
    eventually(lambda: _observed(cluster, "gpu-node-1") == generation, "the agent has read it", SETTLE_SECONDS)


def _observed(found: Cluster, name: str) -> int | None:
    status: Mapping[str, Any] = apply.get(found.api, f"{PLANS}/{name}").get("status") or {}
    generation = status.get("observedGeneration")
    return int(generation) if generation is not None else None


def test_a_node_deleted_and_back_at_once_keeps_its_pins(cluster: Cluster) -> None:
    start(cluster, "manual")
    eventually(lambda: settled(cluster), "everything is settled", SETTLE_SECONDS)
    path = f"{PLANS}/gpu-node-1"
    before = apply.get(cluster.api, path)
    manifest = next(body for body in load([str(SURVIVORS.parent / "manual")]) if body["kind"] == "Node")
    old_uid = apply.get(cluster.api, f"{NODES}/gpu-node-1")["metadata"]["uid"]
    apply.delete(cluster.api, f"{NODES}/gpu-node-1")
    cluster.create(manifest)
    new_uid = apply.get(cluster.api, f"{NODES}/gpu-node-1")["metadata"]["uid"]
    assert new_uid != old_uid
    eventually(
        lambda: apply.get(cluster.api, path)["status"]["node"]["uid"] == new_uid, "the agent is back", SETTLE_SECONDS
    )
    after = apply.get(cluster.api, path)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]

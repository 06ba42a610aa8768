"""A write that is under way while the lead changes: it arrives after the new leader's, and must be refused.

The old leader's requests go over a wire that holds its writes to plans from the moment that it sends them. Then the
leader itself is frozen past its Lease, its successor plans and writes, and only then the old writes go on.
"""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from sandbox.control_plane import Role
from tests.e2e.real_cluster import PLANS
from tests.e2e.rig.controlplane import Binaries, RealControlPlane, audit
from tests.e2e.rig.controlplane.plane import API_SERVER
from tests.e2e.rig.controlplane.tenants import RealServers
from tests.e2e.test_faults import add_rival, leader, spec_writes
from tests.e2e.test_scenarios import SETTLE_SECONDS, cluster, said, starts
from tests.e2e.wire import Wire
from tests.sandbox.test_crashes import SURVIVORS, running
from tests.waiting import eventually

__all__ = ["cluster", "said", "starts"]  # fixtures
PLAN_WRITE = re.compile(f"PATCH {PLANS}/[^/? ]+[? ]".encode())  # and not of its status


class WiredServers(RealServers):
    """The first controller that requests credentials gets them with the wire."""

    wire: Wire | None = None

    def kubeconfig(self, role: Role, node: str = "") -> str:
        found = super().kubeconfig(role, node)
        if role is not Role.CONTROLLER or self.wire is not None:
            return found
        self.wire = Wire(found)
        return self.wire.kubeconfig


@pytest.fixture
def servers(programs: Binaries, tmp_path: Path) -> Iterator[WiredServers]:
    extra = {API_SERVER: audit.flags(tmp_path)}
    found = WiredServers(RealControlPlane(programs, directory=tmp_path / "plane", extra=extra))
    yield found
    if found.wire is not None:
        found.wire.close()


def test_a_write_under_way_loses_against_the_successors(
    cluster: Cluster, servers: WiredServers, tmp_path: Path
) -> None:
    manifests = load([str(SURVIVORS.parent / "mig")])
    pods = [body for body in manifests if body["kind"] == "Pod"]
    cluster.start([body for body in manifests if body["kind"] != "Pod"])
    eventually(lambda: len(cluster.plans()) == 3, "the plans", SETTLE_SECONDS)
    first, wire = leader(cluster), servers.wire
    assert first
    assert wire
    add_rival(cluster, servers)
    wire.hold(PLAN_WRITE)
    for pod in pods:
        cluster.create(pod)
    assert wire.held.wait(60), "the leader writes a plan"
    pid = cluster.supervisor.children["controller"].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: leader(cluster) not in ("", first), "the other controller leads", SETTLE_SECONDS)
        wanted = {pod["metadata"]["name"] for pod in pods}
        eventually(lambda: running(cluster) == wanted, "all pods run", SETTLE_SECONDS)
        before = {plan["metadata"]["name"]: plan["spec"] for plan in cluster.plans()}
        wire.release()
        log = tmp_path / "audit.log"
        eventually(lambda: any(code == 409 for _, _, code in spec_writes(log)), "a late write arrives and is refused")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: cluster.supervisor.children["controller"].restarts > 0, "the old leader ends", SETTLE_SECONDS)
    late = {plan: token for plan, token, code in spec_writes(log) if code == 409}
    for plan, token in late.items():
        accepted = [who for name, who, code in spec_writes(log) if name == plan and code == 200]
        assert accepted, f"another client wrote {plan} before"
        assert token not in accepted
    assert {plan["metadata"]["name"]: plan["spec"] for plan in cluster.plans()} == before

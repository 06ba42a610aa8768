"""The scenarios of tests/sandbox and the faults of a real control plane, with the product's processes on top.

Every test there that uses a fixture named `cluster` is run here, too, with nothing changed but that. Controller
and agents run as in the sandbox, but every right they have is the one that deploy/ gives them; hardware and kubelets
are stand-ins. After each scenario the audit log must show no request of theirs that was forbidden.
"""

import importlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crds.v1alpha1 import names
from kube import apply
from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from tests.e2e.real_cluster import ROOT, quietly
from tests.e2e.rig.controlplane import Binaries, RealControlPlane, audit
from tests.e2e.rig.controlplane.plane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from tests.e2e.rig.controlplane.tenants import RealServers
from tests.sandbox.test_crashes import SURVIVORS, running, settled
from tests.waiting import eventually

SETTLE_SECONDS = 150.0


@pytest.fixture
def servers(programs: Binaries, tmp_path: Path) -> RealServers:
    """A control plane of the test's own, which writes an audit log."""
    extra = {API_SERVER: audit.flags(tmp_path)}
    return RealServers(RealControlPlane(programs, directory=tmp_path / "plane", extra=extra))


@pytest.fixture
def starts() -> list[tuple[datetime, datetime]]:
    """When an API server was starting: until it has read roles and bindings it refuses what it will allow."""
    return []


@pytest.fixture
def said() -> list[str]:
    """What the sandbox reported."""
    return []


@pytest.fixture
def cluster(
    servers: RealServers, starts: list[tuple[datetime, datetime]], said: list[str], tmp_path: Path
) -> Iterator[Cluster]:
    """The sandbox on those servers; nothing of the product may have been forbidden in the end."""
    found = Cluster(control_plane=servers, report=said.append)
    try:
        yield found
        assert audit.forbidden(tmp_path / audit.LOG, starts) == []
    finally:
        found.stop()


def scenarios() -> list[ModuleType]:
    """The modules of tests/sandbox whose tests use a cluster."""
    paths = sorted((ROOT / "tests" / "sandbox").glob("test_*.py"))
    modules = [importlib.import_module(f"tests.sandbox.{path.stem}") for path in paths]
    return [module for module in modules if hasattr(module, "cluster")]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real servers share the machine with everything else."""
    for module in scenarios():
        monkeypatch.setattr(module, "eventually", _patiently)


def _patiently(observe: Callable[[], object], what: str, seconds: float = 0.0, **shown: Any) -> object:
    return eventually(observe, what, max(seconds, SETTLE_SECONDS), **shown)


for _module in scenarios():
    _tests = {name: test for name, test in vars(_module).items() if name.startswith("test_")}
    assert not _tests.keys() & globals().keys(), f"{_module.__name__} has tests of names that are taken"
    globals().update(_tests)


def start(cluster: Cluster, example: str) -> set[str]:
    """The example's pods, none of which is there yet."""
    manifests = load([str(SURVIVORS.parent / example)])
    pods = [body for body in manifests if body["kind"] == "Pod"]
    cluster.start([body for body in manifests if body["kind"] != "Pod"])
    eventually(lambda: len(cluster.plans()) == _nodes(manifests), "a plan for every node", SETTLE_SECONDS)
    for pod in pods:
        cluster.create(pod)
    return {pod["metadata"]["name"] for pod in pods}


def _nodes(manifests: list[dict[str, Any]]) -> int:
    return sum(1 for body in manifests if body["kind"] == "Node")


@pytest.mark.parametrize("part", [API_SERVER, ETCD, SCHEDULER, CONTROLLER_MANAGER])
def test_a_server_killed_in_mid_run_and_back(
    cluster: Cluster, servers: RealServers, starts: list[tuple[datetime, datetime]], part: str
) -> None:
    wanted = start(cluster, "mig")
    eventually(lambda: any(plan["spec"].get("planned") for plan in cluster.plans()), "a plan is written")
    killed_at = datetime.now(UTC)
    servers.plane.parts[part].kill()
    servers.plane.restart(part)
    starts.append((killed_at, datetime.now(UTC)))
    eventually(lambda: quietly(lambda: running(cluster)) == wanted, "all pods run", SETTLE_SECONDS)
    eventually(lambda: quietly(lambda: settled(cluster)), "everything is settled", SETTLE_SECONDS)


def test_the_controllers_election_and_heartbeats_are_seen(cluster: Cluster) -> None:
    start(cluster, "manual")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
    eventually(
        lambda: (
            {lease["metadata"]["name"] for lease in apply.get(cluster.api, path)["items"]}
            == {names.CONTROLLER_LEASE, names.agent_lease("gpu-node-1")}
        ),
        "both Leases",
    )
    eventually(lambda: settled(cluster), "everything is settled", SETTLE_SECONDS)

"""The chart and plans, synced by the engine of Argo CD into a real control plane."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.v1alpha1 import names
from deploy.generate.manifests import DEPLOY
from tests.e2e.chart_release import bare_cluster
from tests.e2e.gitops.early_writes import WRITES, EarlyWrites
from tests.e2e.gitops.installed import NODE, generations, ports_and_values, rendered, running
from tests.e2e.real_cluster import CRD, PLANS, RealCluster, call, plan
from tests.e2e.rig.controlplane import Binaries
from tests.waiting import eventually

RULES = DEPLOY / "gitops/argocd/argocd-cm.yaml"
SECONDS = 120.0
SENT_AGAIN = {"PodDisruptionBudget"}
"""Its selector is one that clients replace rather than merge, so that each apply sends it; nothing changes by it."""
WORKLOADS = ("Deployment", "DaemonSet")
PINNED = {"index": 0, "mig": {"instances": [{"profile": "3g.40gb", "start": 4}]}}
OTHER = {"index": 0, "mig": {"instances": [{"profile": "2g.20gb", "start": 0}]}}
IMPOSSIBLE = {"index": 0, "mig": {"instances": [{"profile": "9g.90gb"}]}}


class Argo:
    """An application of Argo CD: a folder, and what a sync of it prints."""

    def __init__(self, program: Path, cluster: RealCluster, folder: Path, application: str) -> None:
        self.files = folder / application
        self.files.mkdir()
        config = folder / f"{application}.kubeconfig"
        config.write_text(cluster.plane.kubeconfig())
        options = {
            "kubeconfig": config,
            "namespace": names.NAMESPACE,
            "health-rules": RULES,
            "application": application,
        }
        self._command = [str(program), *(f"--{name}={value}" for name, value in options.items()), str(self.files)]

    def sync(self) -> list[dict[str, Any]]:
        """The objects of a sync that succeeded, in the order in which they were applied."""
        done = subprocess.run(self._command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        assert printed["phase"] == "Succeeded", printed
        found: list[dict[str, Any]] = printed["resources"]
        return found

    def commit(self, *plans: dict[str, Any]) -> None:
        (self.files / "plans.yaml").write_text(yaml.safe_dump_all(plans))

    def health(self, kinds: tuple[str, ...]) -> set[str]:
        """Of all objects of these kinds, after another sync."""
        return {one["health"]["status"] for one in self.sync() if one["kind"] in kinds}


@pytest.fixture
def cluster(programs: Binaries, tmp_path: Path) -> Iterator[RealCluster]:
    with bare_cluster(programs, tmp_path) as found:
        yield found


def test_the_chart_and_plans(cluster: RealCluster, argo_program: Path, helm: Path, folder: Path) -> None:
    chart = Argo(argo_program, cluster, folder, "gpuplan")
    with ports_and_values(folder) as values:
        for name, text in rendered(helm, folder, values).items():
            (chart.files / name).write_text(text)
        (chart.files / CRD.name).write_text(CRD.read_text())

        with EarlyWrites(cluster) as tried:
            applied = chart.sync()
            tried.wait_for_rights()
        assert not tried.allowed
        assert set(tried.without_rights) == set(WRITES)
        order = [one["kind"] for one in applied]
        policies = [number for number, kind in enumerate(order) if kind.startswith("ValidatingAdmissionPolicy")]
        rights = [number for number, kind in enumerate(order) if kind.endswith("RoleBinding")]
        assert policies
        assert max(policies) < min(rights), order

        before = generations(cluster)
        again = chart.sync()
        assert generations(cluster) == before
        assert {one["kind"] for one in again if not one["message"].endswith(" unchanged")} <= SENT_AGAIN

        with running(cluster, helm, folder):
            eventually(lambda: chart.health(WORKLOADS) == {"Healthy"}, "all workloads are healthy", SECONDS)
            synced_plans(cluster, Argo(argo_program, cluster, folder, "plans"))


def synced_plans(cluster: RealCluster, plans: Argo) -> None:
    """A plan in Git through each health."""

    def becomes(expected: str) -> None:
        eventually(lambda: plans.health(("GPUPartitionPlan",)) == {expected}, expected, SECONDS, seen=plans.sync)

    plans.commit(plan(NODE, gpus=[PINNED]))
    becomes("Healthy")
    generation = call(cluster.admin, "GET", f"{PLANS}/{NODE}").body["metadata"]["generation"]
    (unchanged,) = plans.sync()
    assert unchanged["message"].endswith("unchanged")
    assert call(cluster.admin, "GET", f"{PLANS}/{NODE}").body["metadata"]["generation"] == generation

    plans.commit(plan(NODE, gpus=[OTHER], paused=True))
    becomes("Suspended")
    plans.commit(plan(NODE, gpus=[OTHER]))
    becomes("Healthy")
    plans.commit(plan(NODE, gpus=[IMPOSSIBLE]))
    becomes("Degraded")
    (degraded,) = plans.sync()
    assert "9g.90gb" in degraded["health"]["message"]

"""The chart's manifests and plans, synced by Flux's kustomize-controller as the example has it.

What the example takes from a Git repository comes from this checkout, rendered with the paths of this machine.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate.manifests import DEPLOY
from tests.e2e.gitops.early_writes import EarlyWrites
from tests.e2e.gitops.flux import Flux
from tests.e2e.gitops.installed import NODE, generations, ports_and_values, rendered, running
from tests.e2e.real_cluster import CRD, PLANS, ROOT, RealCluster, call, plan, running_cluster
from tests.e2e.rig.controlplane import Binaries
from tests.waiting import eventually

EXAMPLES = DEPLOY / "gitops/flux"
FILES = ("deploy/kustomization.yaml", "deploy/gitops/flux/policies/kustomization.yaml", f"crds/{CRD.name}")
SECONDS = 180.0
PINNED = {"index": 0, "mig": {"instances": [{"profile": "3g.40gb", "start": 4}]}}
IMPOSSIBLE = {"index": 0, "mig": {"instances": [{"profile": "9g.90gb"}]}}
Json = dict[str, Any]


def kustomizations(file: str) -> dict[str, Json]:
    """Those of an example by name."""
    documents = yaml.safe_load_all((EXAMPLES / file).read_text())
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == "Kustomization"}


@pytest.fixture
def cluster(programs: Binaries, tmp_path: Path) -> Iterator[RealCluster]:
    with running_cluster(programs, tmp_path) as found:
        yield found


@pytest.fixture
def flux(cluster: RealCluster, flux_program: Path, tmp_path: Path) -> Iterator[Flux]:
    found = Flux(flux_program, cluster, tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.close()


def test_the_manifests_and_plans(cluster: RealCluster, flux: Flux, helm: Path, folder: Path) -> None:
    steps = kustomizations("manifests.yaml")
    with ports_and_values(folder) as values:
        files = {name: (ROOT / name).read_text() for name in FILES}
        files |= {f"deploy/manifests/{name}": text for name, text in rendered(helm, folder, values).items()}
        flux.commit("gpuplan", files)

        with EarlyWrites(cluster) as tried:
            for step in steps.values():
                flux.create(step)
            tried.wait_for_rights()
        assert not tried.allowed

        with running(cluster, helm, folder):
            for name in steps:
                becomes_ready(flux, name)
            unchanged_by_another_sync(cluster, flux, list(steps))
            synced_plans(cluster, flux)


def becomes_ready(flux: Flux, name: str) -> None:
    """All objects of a Kustomization are applied and, by `wait: true`, healthy."""
    eventually(
        lambda: flux.ready(name)[0] == "True", f"{name} is ready", SECONDS, seen=lambda: (flux.ready(name), flux.tail())
    )


def unchanged_by_another_sync(cluster: RealCluster, flux: Flux, names: list[str]) -> None:
    before = generations(cluster)
    for name in names:
        flux.reconcile(name, "again")
        eventually(partial(flux.has_handled, name, "again"), f"{name} is synced again", SECONDS)
        becomes_ready(flux, name)
    assert generations(cluster) == before


def synced_plans(cluster: RealCluster, flux: Flux) -> None:
    """A plan is ready when it is in force, fails at once where a person must act, and pruning changes no hardware."""
    (plans,) = kustomizations("gpuplan.yaml").values()
    flux.commit("flux-system", {"gpu-plans/plan.yaml": yaml.safe_dump(plan(NODE, gpus=[PINNED]))})
    flux.create(plans)
    becomes_ready(flux, "gpu-plans")
    found = call(cluster.admin, "GET", f"{PLANS}/{NODE}").body
    assert found["status"]["summary"]["mig"] == "0/1"

    flux.commit("flux-system", {"gpu-plans/plan.yaml": yaml.safe_dump(plan(NODE, gpus=[IMPOSSIBLE]))})
    eventually(lambda: "stalled" in flux.ready("gpu-plans")[1], "the wait fails", SECONDS, seen=flux.tail)
    assert f"GPUPartitionPlan/{NODE} status: 'Failed'" in flux.ready("gpu-plans")[1]

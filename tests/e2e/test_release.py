"""A release installs from its own folder alone: the package, the chart from a registry, and the manifests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.generate.manifests import NAMESPACE
from partitioning import __version__
from tests.e2e.chart_release import NAME, Release, bare_cluster
from tests.e2e.real_cluster import RealCluster
from tests.e2e.rig import registry
from tests.e2e.rig.controlplane import Binaries, Places
from tests.e2e.rig.release import release_folder

VALUES = {"image": {"repository": "registry.example.com/gpuplan"}}


@pytest.fixture(scope="module")
def folder(helm: Path) -> Path:
    return release_folder(Places.of(os.environ, Path.home()), helm)


@pytest.fixture
def cluster(programs: Binaries, tmp_path: Path) -> Iterator[RealCluster]:
    with bare_cluster(programs, tmp_path) as found:
        yield found


def images(manifest: str) -> set[str]:
    """Of all containers."""
    documents = [document for document in yaml.safe_load_all(manifest) if document]
    pods = [document["spec"]["template"]["spec"] for document in documents if "template" in document.get("spec", {})]
    return {container["image"] for pod in pods for container in pod["containers"]}


@pytest.mark.parametrize("source", ["package", "registry"])
def test_the_chart_installs_with_the_image_of_its_release(
    source: str, folder: Path, cluster: RealCluster, helm: Path, tmp_path: Path
) -> None:
    release = Release(cluster, helm, tmp_path)
    with registry.serving({"charts/gpuplan": folder / "chart"}) as address:
        if source == "package":
            release.helm("install", NAME, str(folder / f"gpuplan-{__version__}.tgz"), values=VALUES)
        else:
            chart = ("--version", __version__, "--plain-http")
            release.helm("install", NAME, f"oci://{address}/charts/gpuplan", *chart, values=VALUES)
    digest = registry.entry(folder / "image")["digest"]
    assert images(release.helm("get", "manifest", NAME)) == {f"registry.example.com/gpuplan@{digest}"}
    cluster.wait_established()


def test_the_manifests_install_without_helm(folder: Path, cluster: RealCluster) -> None:
    for name in ("crds.yaml", "manifests.yaml"):
        cluster.kubectl("apply", "--server-side", "-f", str(folder / name), check=True)
        if name == "crds.yaml":
            cluster.wait_established()
    there = cluster.kubectl("-n", NAMESPACE, "get", "deployments,daemonsets", "-o", "name", check=True).split()
    assert {"deployment.apps/gpuplan-controller", "daemonset.apps/gpuplan-agent"} <= set(there)

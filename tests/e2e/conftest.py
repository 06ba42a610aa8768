"""The real control plane under these tests, started once per session: `GPUPLAN_E2E=1 pytest tests/e2e`.

Without GPUPLAN_E2E every test is skipped with one line, for servers must be built first (`make e2e` does it). K8S
chooses the Kubernetes version, KUBEBUILDER_ASSETS a folder of programs. Missing programs end the session with what
would help. Everything else the tests get from fixtures: no test reads the environment.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.controlplane import Binaries, Missing, Places, RealControlPlane, obtain
from tests.e2e.real_cluster import RealCluster

HERE = Path(__file__).parent
SECONDS = 600  # servers on a busy machine of two cores
NOT_ASKED = "the real control plane is not asked for: set GPUPLAN_E2E=1, or use `make e2e`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all unless asked; give every test here more time than a unit test."""
    asked = os.environ.get("GPUPLAN_E2E") == "1"
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(SECONDS))
        if not asked:
            item.add_marker(pytest.mark.skip(reason=NOT_ASKED))


@pytest.fixture(scope="session")
def programs() -> Binaries:
    """The servers of the asked version; the first run builds them."""
    found = obtain(os.environ.get("K8S") or None, Places.of(os.environ, Path.home()), report=print)
    if isinstance(found, Missing):
        pytest.exit(f"no real control plane: {found.message}", returncode=2)
    return found


@pytest.fixture(scope="session")
def cluster(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One control plane with the CRD and everything of deploy/ applied; tests use nodes of their own names."""
    plane = RealControlPlane(programs, directory=tmp_path_factory.mktemp("plane"))
    plane.start()
    try:
        found = RealCluster(plane, tmp_path_factory.mktemp("clients"))
        found.install()
        yield found
    finally:
        plane.stop()

"""The real control plane under these tests, started once per session: `GPUPLAN_E2E=1 pytest tests/e2e`.

Without GPUPLAN_E2E one test is collected, whose reason tells so, for servers must be built first (`make e2e` does it).
K8S chooses the Kubernetes version, KUBEBUILDER_ASSETS a folder of programs. Missing programs end the session with what
would help. Everything else the tests get from fixtures: no test reads the environment.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.generate.manifests import NAMESPACE
from tests.e2e.chart_rendering import Rendered
from tests.e2e.real_cluster import RealCluster, running_cluster
from tests.e2e.rig.controlplane import Binaries, Missing, Places, obtain
from tests.e2e.rig.controlplane.binaries import helm as build_helm

HERE = Path(__file__).parent
SECONDS = 600  # servers on a busy machine of two cores
# A server that is killed resets connections that wait in its backlog. Python 3.11's ssl then leaves the socket that it
# has just taken over unclosed (SSLSocket._create raises from its recv), and any later test may be the one that collects
# it. Such a socket has no peer any more; one with a peer (raddr) was left open by a test, and fails the test.
RESET_BEFORE_TLS = r"unclosed <ssl.SSLSocket [^>]* laddr=\('127.0.0.1', \d+\)>"
ALWAYS = ("conftest.py", "test_asked.py")
# Read by pytest: what is not to be collected.
collect_ignore = (
    [] if os.environ.get("GPUPLAN_E2E") == "1" else sorted(p.name for p in HERE.iterdir() if p.name not in ALWAYS)
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test here more time than a unit test, and do not blame it for connections that it cut."""
    for item in items:
        if not item.nodeid.startswith("tests/e2e/"):
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
        item.add_marker(pytest.mark.filterwarnings(f"ignore:{RESET_BEFORE_TLS}:ResourceWarning"))


@pytest.fixture(scope="session")
def programs() -> Binaries:
    """The servers of the requested version; the first run builds them."""
    found = obtain(os.environ.get("K8S") or None, Places.of(os.environ, Path.home()), report=print)
    if isinstance(found, Missing):
        pytest.exit(f"no real control plane: {found.message}", returncode=os.EX_UNAVAILABLE)
    return found


@pytest.fixture(scope="session")
def helm() -> Path:
    """The program; the first run builds it."""
    found = build_helm(Places.of(os.environ, Path.home()), report=print)
    if isinstance(found, Missing):
        pytest.exit(f"no helm: {found.message}", returncode=os.EX_UNAVAILABLE)
    return found


@pytest.fixture
def render(helm: Path, tmp_path: Path) -> Callable[..., Rendered]:
    """The chart with these values, in this namespace."""
    return lambda text="", namespace=NAMESPACE: Rendered(helm, tmp_path, text, namespace)


@pytest.fixture(scope="session")
def cluster(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One control plane with the CRD and everything of deploy/ applied; tests use nodes of their own names."""
    with running_cluster(programs, tmp_path_factory.mktemp("cluster")) as found:
        found.install()
        yield found


@pytest.fixture(scope="session")
def cluster_count() -> int:
    """How many random clusters are tried."""
    return int(os.environ.get("GPUPLAN_E2E_CLUSTERS", "200"))


@pytest.fixture(scope="session")
def seed_count() -> int:
    """How many plans of each mix are followed."""
    return int(os.environ.get("GPUPLAN_E2E_SEEDS", "1"))

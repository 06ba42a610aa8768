"""A whole cluster of one node that runs real containers, for the session: `make e2e-node`.

Collected only below `rig/containers/enter.sh`, which gives it mounts, network and processes of its own. gpuplan runs
in its own image, as Deployment and DaemonSets with the tokens that the kubelet mounts; below the agent lies the
simulated driver. No test is an administrator inside a container.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.containers.lab import Lab
from tests.e2e.rig.containers.prepare import prepare
from tests.e2e.rig.controlplane import Missing, Places

FOLDER = os.environ.get("GPUPLAN_E2E_FOLDER")
HERE = Path(__file__).parent
# Read by pytest: what is not to be collected.
collect_ignore = [] if FOLDER else sorted(path.name for path in HERE.glob("test_*.py"))
LAST = HERE / "test_rights.py"
DESELECTED = pytest.StashKey[bool]()
SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Containers on a busy machine of two cores take longer than unit tests; what judges all tests comes last."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
    items.sort(key=lambda item: item.path == LAST)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Keep in mind that tests of this suite do not run."""
    for item in items:
        item.config.stash[DESELECTED] = True


def left_out(session: pytest.Session) -> str:
    """Why what ran until now is not all of this suite; empty where it is."""
    modules = {path.name for path in HERE.glob("test_*.py")} - {item.path.name for item in session.items}
    if modules:
        return f"{', '.join(sorted(modules))} did not run"
    if session.config.stash.get(DESELECTED, False) or any("::" in word for word in session.config.args):
        return "only some tests were selected"
    return f"{session.testsfailed} tests have failed" if session.testsfailed else ""


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A Ready node with gpuplan installed, two MIG GPUs and one for MPS."""
    assert FOLDER is not None
    found = prepare(os.environ.get("K8S") or None, Places.of(os.environ, Path.home()), print)
    if isinstance(found, Missing):
        pytest.exit(f"no containers: {found.message}", returncode=os.EX_UNAVAILABLE)
    built = Lab(found, Path(FOLDER))
    try:
        built.start()
        yield built
    finally:
        built.close()

"""The tools that sync the chart from Git, built once: Argo CD's engine and Flux's kustomize-controller.

`make e2e-gitops` runs these tests. A tool that cannot be built here ends the session with what would help.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chart_release import short_folder
from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.gitops import argo_sync, kustomize_controller


@pytest.fixture(scope="session")
def argo_program() -> Path:
    """Argo CD's engine; the first run builds it."""
    return _built(argo_sync(Places.of(os.environ, Path.home()), report=print))


@pytest.fixture(scope="session")
def flux_program() -> Path:
    """Flux's kustomize-controller; the first run builds it."""
    return _built(kustomize_controller(Places.of(os.environ, Path.home()), report=print))


def _built(found: Path | Missing) -> Path:
    if isinstance(found, Missing):
        pytest.exit(f"no tool for GitOps: {found.message}", returncode=os.EX_UNAVAILABLE)
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the node's sockets."""
    with short_folder() as found:
        yield found

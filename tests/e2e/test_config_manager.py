"""NVIDIA's own config-manager does what our stand-in of it does, case by case.

The program is that of v0.19.1, built from the Go module; v0.20.0 differs in one guard, against processes without a
command line. No GPU is needed: it reads a label and files, and sends a signal.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver import ApiServer, Delay
from tests.e2e.real_config_manager import RealConfigManager
from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.nvidia.programs import DEVICE_PLUGIN, find
from tests.e2e.rig.realkubelet import obstacle
from tests.sandbox.nvidia_plugin.config_manager_cases import CASES, Case, do

pytestmark = pytest.mark.timeout(3000)  # the first run builds the program
ANSWER_SECONDS = 0.2


@pytest.fixture(scope="module")
def program() -> Path:
    reason = obstacle()
    if reason:
        pytest.skip(f"no process namespace here: {reason}")
    found = find(DEVICE_PLUGIN, Places.of(os.environ, Path.home()), report=print)
    if isinstance(found, Missing):
        (pytest.fail if found.broken else pytest.skip)(f"no config-manager: {found.message}")
    return found / "config-manager"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Answers late, for whichever comes first, its answer or the program's first look at the label, decides what is
    done at a start; without this it is the look, but not on every machine at every time."""
    started = ApiServer()
    started.faults.append(lambda _request: Delay(seconds=ANSWER_SECONDS))
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_config_manager(case: Case, program: Path, server: ApiServer, tmp_path: Path) -> None:
    side = RealConfigManager(program, server, tmp_path, dict(case.settings))
    try:
        do(side, case)
    finally:
        side.close()

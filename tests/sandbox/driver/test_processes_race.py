"""Several processes at one machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.drawn import thorough
from tests.sandbox.driver.calls import gpu, mig_devices
from tests.sandbox.driver.conftest import Simulate

ROOT = Path(__file__).parents[3]

CUT_ALL = """
import pynvml
from tests.sandbox.driver.calls import create, gpu
pynvml.nvmlInit()
made = 0
try:
    while True:
        create(gpu(), 19)
        made += 1
except pynvml.NVMLError_InsufficientResources:
    print(made)
"""


def run_on(machine: Path, module: Path, source: str) -> subprocess.Popen[str]:
    module.write_text(source)
    command = [sys.executable, "-m", "sandbox.driver.run", str(machine), "-m", module.stem]
    environment = {"PYTHONPATH": f"{ROOT}:{module.parent}", "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("place", ["in process", *thorough("library")], indirect=True)
def test_four_processes_race_for_seven_places(simulate: Simulate, tmp_path: Path) -> None:
    path = simulate("A100-40GB", mig_enabled=True)
    racers = [run_on(path, tmp_path / "cut_all.py", CUT_ALL) for _ in range(4)]
    made = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(made) == 7
    assert len({device.uuid for device in mig_devices(gpu())}) == 7

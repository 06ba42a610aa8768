"""Injected faults, crashes between calls, and several processes at one machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.driver.abi.library import KILLED_EXIT_STATUS
from sandbox.driver.status import Status
from tests import faults
from tests.faults import ALWAYS, Action
from tests.sandbox.driver.calls import (
    code_of,
    compute_instances,
    create,
    gpu,
    gpu_instances,
    mig_devices,
    nvml,
    profiles,
)
from tests.sandbox.driver.conftest import Simulate

ROOT = Path(__file__).parents[3]
IN_USE = 19

CUT_ONE = """
import pynvml
from tests.sandbox.driver.calls import create, gpu
pynvml.nvmlInit()
create(gpu(), 14)
"""
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


def test_in_use_for_a_while(simulate: Simulate) -> None:
    path = simulate("A100-40GB", mig_enabled=True)
    created = create(gpu(), 14)
    faults.inject(path, "nvmlGpuInstanceDestroy", Action.FAIL, status=Status.IN_USE, times=2)
    instance = nvml.nvmlDeviceGetGpuInstanceById(gpu(), created.gpu_instance)
    for compute in compute_instances(instance):
        nvml.nvmlComputeInstanceDestroy(compute)
    assert [code_of(nvml.nvmlGpuInstanceDestroy, instance) for _ in range(2)] == [IN_USE, IN_USE]
    nvml.nvmlGpuInstanceDestroy(instance)


def test_a_fault_can_wait_and_can_be_bound_to_one_gpu(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "H100-80GB")
    uuid = nvml.nvmlDeviceGetUUID(gpu(1))
    faults.inject(path, "nvmlDeviceGetMigMode", Action.FAIL, status=Status.UNKNOWN, skip=1, times=ALWAYS, gpu=uuid)
    assert nvml.nvmlDeviceGetMigMode(gpu(0)) == [0, 0]
    assert nvml.nvmlDeviceGetMigMode(gpu(1)) == [0, 0]
    assert [code_of(nvml.nvmlDeviceGetMigMode, gpu(1)) for _ in range(3)] == [999] * 3
    assert nvml.nvmlDeviceGetMigMode(gpu(0)) == [0, 0]
    faults.clear(path)
    assert nvml.nvmlDeviceGetMigMode(gpu(1)) == [0, 0]


def test_a_slow_call(simulate: Simulate) -> None:
    path = simulate("H100-80GB")
    faults.inject(path, "nvmlDeviceGetName", Action.DELAY, seconds=0.2)
    start = time.monotonic()
    nvml.nvmlDeviceGetName(gpu())
    assert time.monotonic() - start >= 0.2


@pytest.mark.parametrize(("action", "left"), [(Action.DIE_AFTER, 1), (Action.DIE_BEFORE, 0)])
def test_a_caller_dies_around_a_call(simulate: Simulate, tmp_path: Path, action: Action, left: int) -> None:
    path = simulate("A100-40GB", mig_enabled=True)
    faults.inject(path, "nvmlDeviceCreateGpuInstanceWithPlacement", action)
    with run_on(path, tmp_path / "cut_one.py", CUT_ONE) as process:
        assert process.wait(30) == KILLED_EXIT_STATUS
    instances = gpu_instances(gpu(), profiles(gpu())[14])
    assert len(instances) == left
    assert mig_devices(gpu()) == []  # what is left of the crash has no compute instance: no MIG device shows it


def test_four_processes_race_for_seven_places(simulate: Simulate, tmp_path: Path) -> None:
    path = simulate("A100-40GB", mig_enabled=True)
    racers = [run_on(path, tmp_path / "cut_all.py", CUT_ALL) for _ in range(4)]
    made = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(made) == 7
    assert len({device.uuid for device in mig_devices(gpu())}) == 7

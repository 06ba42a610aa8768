"""The shared library as processes use it: its structures, and what becomes of it when either side ends."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.driver import clients
from sandbox.driver.abi.library import Library
from sandbox.driver.abi.registry import HANDLE, INT, OUT, UINT
from sandbox.driver.abi.symbols import EXPORTS
from sandbox.driver.library.build import symbols
from sandbox.driver.library.serve import CALL, Server, environment
from sandbox.driver.machine import GpuOptions, create
from tests.builders.models import MODELS
from tests.sandbox.driver.calls import nvml

BEGIN = "import os, sys, pynvml as n\nn.nvmlInit()\nprint(n.nvmlDeviceGetCount(), flush=True)\n"
Start = Callable[[str], "subprocess.Popen[str]"]

# Size, and the offset of each field, in nvml.h of NVIDIA/go-nvml v0.13.4-1, as a C compiler laid them out.
LAYOUTS: dict[str, tuple[int, dict[str, int]]] = {
    "c_nvmlGpuInstancePlacement_t": (8, {"start": 0, "size": 4}),
    "c_nvmlGpuInstanceProfileInfo_t": (48, {"id": 0, "sliceCount": 8, "multiprocessorCount": 16, "memorySizeMB": 40}),
    "c_nvmlGpuInstanceProfileInfo_v2_t": (152, {"version": 0, "id": 4, "memorySizeMB": 48, "name": 56}),
    "c_nvmlGpuInstanceInfo_t": (24, {"device": 0, "id": 8, "profileId": 12, "placement": 16}),
    "c_nvmlComputeInstanceProfileInfo_t": (36, {"id": 0, "sliceCount": 4, "multiprocessorCount": 12}),
    "c_nvmlComputeInstanceProfileInfo_v2_t": (136, {"version": 0, "id": 4, "multiprocessorCount": 16, "name": 40}),
    "c_nvmlComputeInstanceInfo_t": (32, {"device": 0, "gpuInstance": 8, "id": 16, "profileId": 20, "placement": 24}),
    "c_nvmlDeviceAttributes": (40, {"gpuInstanceSliceCount": 24, "computeInstanceSliceCount": 28, "memorySizeMB": 32}),
    "c_nvmlMemory_t": (24, {"total": 0, "free": 8, "used": 16}),
    "c_nvmlProcessInfo_v2_t": (24, {"pid": 0, "usedGpuMemory": 8, "gpuInstanceId": 16, "computeInstanceId": 20}),
    "nvmlPciInfo_t": (68, {"busIdLegacy": 0, "domain": 16, "bus": 20, "device": 24, "pciDeviceId": 28, "busId": 36}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_structures_are_laid_out_as_in_the_header(name: str) -> None:
    size, offsets = LAYOUTS[name]
    structure: Any = getattr(nvml, name)
    assert ctypes.sizeof(structure) == size
    assert {field: getattr(structure, field).offset for field in offsets} == offsets


def test_every_call_fits_the_registers_that_are_passed_on() -> None:
    allowed = {HANDLE, INT, UINT, OUT}
    assert all(len(export.types) <= 6 and set(export.types) <= allowed for export in EXPORTS.values())
    assert max(len(name) for name in symbols()) < 64 == CALL.size - 6 * 8
    assert set(EXPORTS) < set(symbols())


@pytest.fixture
def served(built: Path, tmp_path: Path) -> Any:
    """A machine with one GPU behind a copy of the library."""
    store = create(tmp_path / "m.json", [(MODELS["H100-80GB"], GpuOptions())], "test")
    server = Server(store, built.parent, Library)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def start(built: Path) -> Start:
    def begin(program: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", BEGIN + program],
            env=environment(os.environ, built.parent),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    return begin


def test_a_process_holds_the_driver_open_until_it_ends(served: Server, start: Start, tmp_path: Path) -> None:
    process = start("sys.stdin.read()")
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    assert clients.any_open(tmp_path / "m.json")
    process.kill()
    process.communicate()
    served.stop()  # waits for the end of each connection
    assert not clients.any_open(tmp_path / "m.json")


def test_a_child_of_fork_starts_the_library_for_itself(served: Server, start: Start) -> None:
    child = (
        "pid = os.fork()\n"
        "try:\n    print(n.nvmlDeviceGetCount(), flush=True)\n"
        "except n.NVMLError as error:\n    print(error, flush=True)\n"
        "if not pid:\n    n.nvmlInit(); print('again', n.nvmlDeviceGetCount(), flush=True); os._exit(0)\n"
        "os.wait(); print('parent', n.nvmlDeviceGetCount())\n"
    )
    process = start(child)
    said = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    assert sorted(said) == ["1", "1", "Uninitialized", "again 1", "parent 1"]


def test_without_the_machine_the_driver_is_not_loaded(served: Server, start: Start) -> None:
    process = start("input()\ntry:\n    n.nvmlDeviceGetCount()\nexcept n.NVMLError as error:\n    print(error)")
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    served.stop()
    said, _ = process.communicate("\n", timeout=60)
    assert said == "Driver Not Loaded\n"


def test_an_address_that_is_none_ends_the_program(served: Server, start: Start) -> None:
    """As the real library does; the machine goes on."""
    process = start("n.nvmlLib.nvmlDeviceGetCount_v2(n.c_ulong(1 << 20))")
    process.communicate(timeout=60)
    assert process.returncode == -11
    other = start("")
    assert other.communicate(timeout=60)[0] == "1\n"
    assert served.not_simulated == set()

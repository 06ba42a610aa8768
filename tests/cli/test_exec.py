"""`gpuplan sandbox exec` gives a program of one's own the simulated GPUs, through the library that it loads itself."""

import os
import sys
from pathlib import Path

import pytest

from cli.__main__ import main
from sandbox.driver import machine
from sandbox.driver.library.build import compiler
from tests.builders.models import H100

PROGRAM = """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(1)
print(type(pynvml.nvmlLib).__name__, pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device))
try:
    pynvml.nvmlDeviceGetNumGpuCores(device)
except pynvml.NVMLError as error:
    print(error)
raise SystemExit(7)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return machine.create(tmp_path / "gpus.json", [(H100, machine.GpuOptions())] * 2, "n1").path


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc) on PATH")
def test_a_program_sees_the_gpus_and_what_is_not_simulated_is_named(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandbox", "exec", str(path), sys.executable, "-c", PROGRAM]) == 7
    done = capfd.readouterr()
    uuid = machine.observe(path)["gpus"][1]["uuid"]
    assert done.out == f"CDLL NVIDIA H100 80GB HBM3 {uuid}\nFunction Not Found\n"
    assert done.err == "gpuplan: not simulated: nvmlDeviceGetNumGpuCores\n"


def test_without_a_compiler_it_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["sandbox", "exec", str(path), "true"]) == os.EX_UNAVAILABLE
    assert "no C compiler" in capfd.readouterr().err


@pytest.mark.skipif(compiler() is None, reason="no C compiler (cc) on PATH")
def test_a_program_that_is_not_there_is_a_sentence(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "exec", str(path), "/nowhere"]) == os.EX_USAGE
    assert "/nowhere: No such file or directory" in capfd.readouterr().err


def test_a_file_without_gpus_is_a_sentence(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "exec", str(path.with_name("other.json")), "true"]) == 2
    assert "no simulated GPUs" in capfd.readouterr().err

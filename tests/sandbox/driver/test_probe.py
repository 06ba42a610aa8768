"""What `gpuplan-nodeagent probe` writes, replayed by the simulated driver and probed again: the same bytes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.hardware.driver import DriverError, Health, MigMode
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.hardware.probe import READS, _written, probe
from sandbox.driver import breaking
from sandbox.driver.abi.replay import Replay, library_of
from sandbox.driver.abi.symbols import EXPORTS
from sandbox.driver.install import install
from sandbox.driver.library.build import symbols
from sandbox.driver.library.serve import Server, environment
from sandbox.driver.machine import observe
from sandbox.driver.processes import attach
from sandbox.driver.status import Status
from sandbox.driver.store import Store
from tests import faults
from tests.builders.models import MODELS
from tests.nodeagent.driver_calls import CALLS, ELSEWHERE, Kind
from tests.quirks import Quirks
from tests.sandbox.driver.calls import nvml
from tests.sandbox.driver.conftest import Place, Simulate

CUT = {"mig_enabled": True, "instances": [("3g.40gb", 4), ("1g.10gb", 0)]}
CUT_A100 = {"mig_enabled": True, "instances": [("3g.20gb", 4), ("1g.5gb", 0)]}


def read(path: Path) -> tuple[list[dict[str, Any]], str, str]:
    """The lines, all of their text, and why the driver could not be asked."""
    lines: list[str] = []
    problem = probe(lines.append)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [json.loads(line) for line in lines], path.read_text(encoding="utf-8"), problem


def first_uuid(path: Path) -> str:
    return observe(path)["gpus"][0]["uuid"]


def with_processes(path: Path) -> None:
    for gpu in observe(path)["gpus"]:
        attach(path, gpu["uuid"], 4242, 300)
        attach(path, gpu["uuid"], 4243, 300, mps=True)


def failing(*symbols: str, status: Status) -> Callable[[Path], None]:
    def begin(path: Path) -> None:
        for symbol in symbols:
            faults.inject(path, symbol, status=status, times=faults.ALWAYS)

    return begin


MACHINES: dict[str, tuple[tuple[str, ...], dict[str, Any], Callable[[Path], None]]] = {
    "instances": (("H100-80GB",), CUT, lambda _path: None),
    "instances of Ampere": (("A100-40GB", "A100-40GB"), CUT_A100, lambda _path: None),
    "MIG and empty": (("H200-141GB",), {"mig_enabled": True}, lambda _path: None),
    "MIG off, and none": (("H100-80GB", "T4", "L4"), {}, with_processes),
    "old driver": (("A100-80GB",), {"driver_version": "525.60.13"}, lambda _path: None),
    "old driver with MIG": (("A100-40GB",), CUT_A100 | {"driver_version": "525.60.13"}, lambda _path: None),
    "first driver": (("A30-24GB",), {"driver_version": "510.47.03"}, lambda _path: None),
    "other answers": (
        ("H100-80GB",),
        CUT | {"quirks": Quirks(names_mig_device=True, mig_index_gaps=True, compute_variants=True)},
        lambda _path: None,
    ),
    "a guest's": (("A100-40GB",), CUT_A100 | {"quirks": Quirks(vgpu_guest=True)}, lambda _path: None),
    "lost": (("H100-80GB", "H100-80GB"), {}, lambda path: breaking.lose(path, first_uuid(path))),
    "rows": (("H100-80GB",), {}, lambda path: breaking.remap_rows(path, first_uuid(path), failed=True)),
    "no name": (("H100-80GB",), CUT, failing("nvmlDeviceGetName", status=Status.UNKNOWN)),
    "nothing optional": (
        ("H100-80GB",),
        CUT,
        failing(*(call.symbol for call in CALLS if call.kind is Kind.OPTIONAL), status=Status.NOT_SUPPORTED),
    ),
    "no MIG devices": (("H100-80GB",), CUT, failing("nvmlDeviceGetMigDeviceHandleByIndex", status=Status.NOT_FOUND)),
    "function missing": (
        ("H100-80GB",),
        {},
        failing("nvmlDeviceGetMPSComputeRunningProcesses_v3", status=Status.FUNCTION_NOT_FOUND),
    ),
    "not loaded": (("H100-80GB",), {}, failing("nvmlInitWithFlags", status=Status.DRIVER_NOT_LOADED)),
    "not counted": (("H100-80GB",), {}, failing("nvmlDeviceGetCount_v2", status=Status.LIB_RM_VERSION_MISMATCH)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_replayed_probe_probed_again_is_equal(simulate: Simulate, place: Place, tmp_path: Path, name: str) -> None:
    models, options, begin = MACHINES[name]
    path = simulate(*models, **options, init=False)
    begin(path)
    before, driver = path.read_bytes(), NvmlDriver()
    readings, text, problem = read(tmp_path / "first.jsonl")
    assert path.read_bytes() == before
    assert not [gpu["uuid"] for gpu in observe(path)["gpus"] if gpu["uuid"][4:] in text]
    seen = _observed(driver)
    assert len(readings) >= (2 if problem else 15)

    undo = install(Store(tmp_path / "first.jsonl"), Replay)
    try:
        replayed = _observed(NvmlDriver())
        assert read(tmp_path / "second.jsonl")[1:] == (text, problem)
    finally:
        undo()
    assert replayed == seen


def test_the_probe_of_a_real_card_is_read_as_the_catalogue_has_it(tmp_path: Path) -> None:
    """An H200 in a virtual machine, MIG off, driver 580.159.04, nothing running."""
    probed = tmp_path / "probe.jsonl"
    probed.write_bytes(Path(__file__).with_name("h200-580-probe.jsonl").read_bytes())
    undo = install(Store(probed), Replay)
    try:
        driver = NvmlDriver()
        (gpu,) = driver.observe()
        assert driver.version() == "580.159.04"
    finally:
        undo()
    assert gpu.model is not None
    assert (gpu.model.key, gpu.model.confirmed, gpu.problem) == ("H200-141GB", True, "")
    assert set(gpu.model.profiles) == set(MODELS["H200-141GB"].profiles)
    assert (gpu.mig_mode, gpu.health, gpu.processes) == (MigMode.DISABLED, Health.OK, ())


def _observed(driver: NvmlDriver) -> object:
    """What the agent makes of it, without what is left out."""
    try:
        return driver.version(), [_without_uuids(gpu) for gpu in driver.observe()]
    except DriverError as error:
        return str(error)


def _without_uuids(gpu: Any) -> object:
    instances = [(i.id, i.placed, [(c.id, c.slices, c.multiprocessors) for c in i.compute]) for i in gpu.instances]
    return gpu.name, gpu.model, gpu.mig_mode, gpu.health, gpu.problem, gpu.minor, gpu.processes, instances


def test_every_question_of_the_agent_is_asked(simulate: Simulate, tmp_path: Path) -> None:
    """But what a change alone asks, and what only a whole GPU is asked."""
    path = simulate("H100-80GB", **CUT, init=False)
    readings, _, _ = read(tmp_path / "one.jsonl")
    asked = {reading["call"] for reading in readings if "call" in reading}
    changing = {name for name, export in EXPORTS.items() if export.writes}
    used = {call.symbol for call in CALLS} | set(ELSEWHERE)
    whole = {call.symbol for call in CALLS if call.whole}
    assert used - changing - whole <= asked
    assert not asked & changing
    assert path.exists()


def test_what_changes_a_gpu_is_refused_by_its_name() -> None:
    changing = {name for name, export in EXPORTS.items() if export.writes}
    assert changing
    assert not {name for name in changing if READS.fullmatch(name)}
    words = (
        "Set",
        "Create",
        "Destroy",
        "Reset",
        "Clear",
        "Enable",
        "Register",
        "Discover",
        "Remove",
        "Apply",
        "Control",
    )
    allowed = [name for name in symbols() if READS.fullmatch(name)]
    assert not [name for name in allowed for word in words if f"nvml{word}" in name or f"Device{word}" in name]


def test_a_change_is_not_made_meanwhile(simulate: Simulate) -> None:
    path = simulate("H100-80GB", **CUT, init=False)
    before, driver = path.read_bytes(), NvmlDriver()
    (gpu,) = driver.observe()
    changes: list[Callable[[], object]] = [
        lambda: driver.create_gpu_instance(gpu.uuid, gpu.instances[0].placed),
        lambda: driver.create_compute_instance(gpu.uuid, gpu.instances[0].id),
        lambda: driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0]),
        lambda: driver.destroy_gpu_instance(gpu.uuid, gpu.instances[0]),
        lambda: driver.set_compute_mode(gpu.uuid, 3),
    ]
    with _written(lambda _line: None):
        for change in changes:
            with pytest.raises(DriverError, match="Insufficient Permissions"):
                change()
    assert path.read_bytes() == before
    driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
    assert path.read_bytes() != before, "the binding is as before"


def test_what_was_not_asked_is_not_answered(
    simulate: Simulate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    simulate("T4", init=False)
    read(tmp_path / "one.jsonl")
    undo = install(Store(tmp_path / "one.jsonl"), Replay)
    try:
        nvml.nvmlInitWithFlags(0)
        with pytest.raises(nvml.NVMLError_Unknown):
            nvml.nvmlDeviceGetHandleByIndex(5)
        with pytest.raises(nvml.NVMLError_NoPermission):
            nvml.nvmlDeviceSetComputeMode(nvml.nvmlDeviceGetHandleByIndex(0), 3)
    finally:
        undo()
    assert "not recorded: nvmlDeviceGetHandleByIndex_v2" in caplog.text
    caplog.clear()


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["in process"], indirect=True)  # where nothing calls it
def test_the_command_on_the_shared_library(built: Path, simulate: Simulate, tmp_path: Path) -> None:
    """As a process, of a machine and of its recording; a driver that is gone is an exit code of its own."""
    state = simulate("A100-40GB", **CUT_A100, init=False)

    def on(machine: Path) -> subprocess.CompletedProcess[str]:
        server = Server(Store(machine), built.parent, library_of(Store(machine)))
        server.start()
        try:
            return subprocess.run(
                [sys.executable, "-m", "nodeagent", "probe"],
                env=environment(os.environ, built.parent),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            server.stop()
            assert server.not_simulated == set()

    first = on(state)
    assert (first.returncode, first.stderr) == (0, "")
    recording = tmp_path / "node.jsonl"
    recording.write_text(first.stdout, encoding="utf-8")
    assert on(recording).stdout == first.stdout
    with Store(state).writing() as machine:
        machine["driver_loaded"] = False
    gone = on(state)
    assert gone.returncode == 3
    assert "Driver Not Loaded" in gone.stderr
    assert [json.loads(line).get("code") for line in gone.stdout.splitlines()] == [None, 9]

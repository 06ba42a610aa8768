"""Making machines, their files and their identities."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox.driver import machine
from sandbox.driver.identity import gpu_uuid, mig_uuid
from sandbox.driver.machine import GpuOptions
from sandbox.driver.procfs import proc_of
from sandbox.driver.store import Store
from tests.builders.models import MODELS
from tests.sandbox.driver.calls import gpu as gpu_handle
from tests.sandbox.driver.calls import mig_devices, nvml
from tests.sandbox.driver.conftest import Simulate

ROOT = Path(__file__).parents[3]


def test_the_same_arguments_make_the_same_machine(tmp_path: Path) -> None:
    gpus = [(MODELS["H100-80GB"], GpuOptions(mig_enabled=True, instances=[("3g.40gb", 4), ("1g.10gb", 0)]))] * 2
    for name in ("one.json", "two.json"):
        machine.create(tmp_path / name, gpus, "node-a")
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()
    other = machine.create(tmp_path / "three.json", gpus, "node-b").path
    uuids = {gpu["uuid"] for path in (tmp_path / "one.json", other) for gpu in machine.observe(path)["gpus"]}
    assert len(uuids) == 4


def test_a_machine_can_start_cut(simulate: Simulate) -> None:
    simulate("H100-80GB", mig_enabled=True, instances=[("3g.40gb", 4), ("1g.10gb", 0)])
    found = [(device.name.rpartition(" ")[2], device.gpu_instance) for device in mig_devices(gpu_handle())]
    assert found == [("3g.40gb", 2), ("1g.10gb", 7)]


@pytest.mark.parametrize(
    ("key", "options", "problem"),
    [
        ("T4", {"mig_enabled": True}, "has no MIG mode"),
        ("H100-80GB", {"instances": [("1g.10gb", 0)]}, "need mig_enabled"),
        ("H100-80GB", {"mig_enabled": True, "instances": [("3g.40gb", 1)]}, "3g.40gb at 1: Invalid Argument"),
        ("H100-80GB", {"mig_enabled": True, "instances": [("4g.40gb", 0), ("1g.10gb", 3)]}, "Insufficient Resources"),
        ("H100-80GB", {"mig_enabled": True, "instances": [("9g.90gb", 0)]}, "no MIG profile 9g.90gb"),
        ("RTX-PRO-5000-BLACKWELL-48GB", {"mig_enabled": True}, "has no MIG mode"),
    ],
)
def test_impossible_hardware_is_refused(key: str, options: GpuOptions, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=problem):
        machine.create(tmp_path / "m.json", [(MODELS[key], options)], 1)
    assert not (tmp_path / "m.json").exists()


def test_uuids_follow_the_drivers_rule() -> None:
    """SHA-1 with version 5 and variant bits; nothing but serial, instance id and engine goes in."""
    uuid = mig_uuid(42, 2, 4)
    assert uuid == mig_uuid(42, 2, 4)
    assert len({uuid, mig_uuid(42, 1, 4), mig_uuid(42, 2, 5), mig_uuid(43, 2, 4)}) == 4
    for text in (uuid, gpu_uuid(42)):
        _, _, _, version, variant, _ = text.split("-")
        assert version.startswith("5")
        assert variant[0] in "89ab"


def test_a_failed_write_leaves_no_trace(tmp_path: Path) -> None:
    store = machine.create(tmp_path / "m.json", [(MODELS["T4"], {})], 1)
    before = store.path.read_text()

    def fail_midway() -> None:
        with store.writing() as state:
            state["gpus"].clear()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert store.path.read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["m.json", "m.json.lock", "m.json.proc"]


def test_readers_see_each_write_at_once(tmp_path: Path) -> None:
    """Many fast writes through one store, read through another that caches."""
    path = machine.create(tmp_path / "m.json", [(MODELS["T4"], {})], 1).path
    writer, reader = Store(path), Store(path)
    for expected in range(1, 200):
        with writer.writing() as state:
            state["generation"] = expected
        assert reader.read()["generation"] == expected


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = machine.create(tmp_path / "m.json", [(MODELS["T4"], {})], 1)

    def count() -> None:
        for _ in range(50):
            with store.writing() as state:
                state["generation"] += 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine.observe(store.path)["generation"] == 200


def test_a_module_runs_unchanged(simulate: Simulate, tmp_path: Path) -> None:
    path = simulate("H100-80GB", mig_enabled=True)
    (tmp_path / "shows.py").write_text(
        "import sys, pynvml\npynvml.nvmlInit()\n"
        "device = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "print(__name__, sys.argv[1:], pynvml.nvmlDeviceGetUUID(device))\n"
    )
    command = [sys.executable, "-m", "sandbox.driver.run", str(path), "-m", "shows", "--flag", "x"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"__main__ ['--flag', 'x'] {nvml.nvmlDeviceGetUUID(gpu_handle())}\n"


def test_a_signal_to_a_process_of_the_machine_is_left_in_its_procfs(simulate: Simulate, tmp_path: Path) -> None:
    path = simulate("H100-80GB")
    entry = proc_of(path) / "4000000"
    entry.mkdir(parents=True)
    (tmp_path / "hangs_up.py").write_text("import os\nos.kill(4000000, 1)\nos.kill(4000001, 1)\n")
    command = [sys.executable, "-m", "sandbox.driver.run", str(path), "-m", "hangs_up"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert [path.name for path in entry.iterdir()] == ["SIGHUP"]
    assert "ProcessLookupError" in done.stderr  # any other pid is one of this system


@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_a_missing_or_foreign_state_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "m.json"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "-m", "sandbox.driver.run", str(path), "-m", "json.tool"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"cannot run on {path}" in done.stderr

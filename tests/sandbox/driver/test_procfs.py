"""The driver's files in /proc follow its instances."""

from pathlib import Path

from nodeagent.cdi.device_numbers import read_device_numbers
from sandbox.driver import machine
from sandbox.driver.machine import GpuOptions
from sandbox.driver.procfs import capability_minor, proc_of
from tests.builders.models import MODELS


def test_each_live_instance_has_a_capability_file(tmp_path: Path) -> None:
    gpus = [
        (MODELS["H100-80GB"], GpuOptions()),
        (MODELS["H100-80GB"], GpuOptions(mig_enabled=True, instances=[("1g.10gb", 2)])),
    ]
    store = machine.create(tmp_path / "m.json", gpus, "seed")
    numbers = read_device_numbers(proc_of(store.path))
    assert numbers.majors["nvidia"] == 195
    (instance,) = machine.observe(store.path)["gpus"][1]["gpu_instances"]
    minor = capability_minor(1, instance["id"])
    assert numbers.capabilities == {(1, instance["id"], None): minor, (1, instance["id"], 0): minor + 1}
    with store.writing() as state:
        state["gpus"][1]["gpu_instances"].clear()
    assert read_device_numbers(proc_of(store.path)).capabilities == {}


def test_minors_are_those_of_the_mig_guide() -> None:
    """Of its listing of /proc/driver/nvidia-caps/mig-minors."""
    assert [capability_minor(0, 0), capability_minor(0, 0, 0), capability_minor(0, 0, 7)] == [3, 4, 11]
    assert [capability_minor(0, 1), capability_minor(0, 1, 0), capability_minor(1, 0)] == [12, 13, 138]

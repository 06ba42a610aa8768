"""What the NVML driver creates and destroys, on the simulated driver beneath the unmodified binding."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.hardware.driver import (
    ChangedError,
    GpuProcess,
    InUseError,
    RefusedError,
)
from partitioning.layouts import Instance
from partitioning.models import GpuModel, known_models
from sandbox.driver import processes
from sandbox.driver.machine import create
from sandbox.driver.status import Status
from tests import faults, incidents
from tests.builders.models import H100
from tests.drawn import points
from tests.nodeagent.hardware.machine import NVML, Machine, make
from tests.quirks import Quirks


@pytest.mark.parametrize(
    ("profile", "start"),
    [("1g.10gb", 6), ("1g.10gb+me", 0), ("1g.20gb", 2), ("2g.20gb", 4), ("3g.40gb", 0), ("4g.40gb", 0), ("7g.80gb", 0)],
)
def test_creates_at_the_placement_with_the_full_compute_instance(machine: Machine, profile: str, start: int) -> None:
    spec = H100.profile(profile)
    assert spec is not None

    make(machine, Instance(start=start, size=spec.size, profile=profile), index=1)

    observed = machine.gpu(1)
    assert str(observed.layout) == f"{profile} at {start}"
    assert observed.instances[0].uuid is not None


@pytest.mark.parametrize(
    "model", points([m for m in known_models() if m.mig_capable and m.confirmed], each=3), ids=lambda m: m.key
)
def test_every_placement_of_every_model(tmp_path: Path, model: GpuModel) -> None:
    undo = faults.install(create(tmp_path / "m.json", [(model, {"mig_enabled": True})], "seed"))
    try:
        machine = Machine(tmp_path / "m.json")
        for spec in model.profiles:
            for start in spec.starts:
                placed = Instance(start=start, size=spec.size, profile=spec.name)
                make(machine, placed)
                gpu = machine.gpu()
                assert gpu.at(placed) is not None
                assert gpu.instances[0].uuid is not None
                machine.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
                machine.driver.destroy_gpu_instance(gpu.uuid, gpu.instances[0])
                assert machine.gpu().instances == ()
    finally:
        undo()


@pytest.mark.parametrize(
    ("placed", "why"),
    [
        (Instance(start=4, size=4, profile="3g.40gb"), "taken"),
        (Instance(start=1, size=4, profile="3g.40gb"), "no such start"),
        (Instance(start=0, size=1, profile="1g.5gb"), "no such profile"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_creations_are_refused(machine: Machine, placed: Instance, why: str) -> None:
    with pytest.raises(RefusedError):
        machine.driver.create_gpu_instance(machine.gpu().uuid, placed)


def test_processes_are_found_on_instances_and_block_their_end(machine: Machine) -> None:
    gpu = machine.gpu()
    instance = gpu.instances[0]
    assert instance.uuid is not None
    processes.attach(machine.path, instance.uuid, 4242, 100)

    assert machine.driver.processes(gpu) == (GpuProcess(pid=4242, instance=instance.id),)
    with pytest.raises(InUseError):
        machine.driver.destroy_compute_instance(gpu.uuid, instance, instance.compute[0])


@pytest.mark.parametrize(
    "placed",
    [Instance(start=4, size=4, profile="4g.40gb"), Instance(start=0, size=4, profile="3g.40gb")],
    ids=["another profile", "another start"],
)
def test_an_instance_that_is_not_the_observed_one_any_more_is_not_destroyed(machine: Machine, placed: Instance) -> None:
    gpu = machine.gpu()
    observed = replace(gpu.instances[0], placed=placed)

    with pytest.raises(ChangedError, match=r"is 3g\.40gb at 4 by now"):
        machine.driver.destroy_compute_instance(gpu.uuid, observed, observed.compute[0])
    with pytest.raises(ChangedError, match=r"is 3g\.40gb at 4 by now"):
        machine.driver.destroy_gpu_instance(gpu.uuid, observed)

    assert machine.gpu() == gpu


def test_a_compute_instance_that_is_not_the_observed_one_any_more_is_not_destroyed(machine: Machine) -> None:
    gpu = machine.gpu()
    observed = gpu.instances[0]

    with pytest.raises(ChangedError, match="compute instance 0 has another profile by now"):
        machine.driver.destroy_compute_instance(gpu.uuid, observed, replace(observed.compute[0], slices=1))

    assert machine.gpu() == gpu


def test_errors_keep_what_was_attempted_and_their_cause(machine: Machine) -> None:
    faults.inject(machine.path, "nvmlGpuInstanceDestroy", status=Status.IN_USE, times=1)
    gpu = machine.gpu()
    instance = gpu.instances[0]
    machine.driver.destroy_compute_instance(gpu.uuid, instance, instance.compute[0])

    with pytest.raises(InUseError, match=r"destroying 3g\.40gb at 4") as caught:
        machine.driver.destroy_gpu_instance(gpu.uuid, instance)

    assert caught.value.__cause__ is not None
    machine.driver.destroy_gpu_instance(gpu.uuid, instance)
    assert machine.gpu().instances == ()


@pytest.mark.parametrize("profile", ["1g.20gb", "7g.80gb"])
def test_of_several_full_compute_profiles_the_one_with_most_multiprocessors_is_made(
    tmp_path: Path, profile: str
) -> None:
    undo = faults.install(
        create(tmp_path / "m.json", [(H100, {"mig_enabled": True})], "seed"), Quirks(compute_variants=True)
    )
    try:
        machine, spec = Machine(tmp_path / "m.json"), H100.profile(profile)
        assert spec is not None
        make(machine, Instance(start=0, size=spec.size, profile=profile))
        instance = NVML.nvmlDeviceGetGpuInstanceById(NVML.nvmlDeviceGetHandleByIndex(0), machine.gpu().instances[0].id)
        made = NVML.nvmlComputeInstanceGetInfo(NVML.nvmlGpuInstanceGetComputeInstanceById(instance, 0)).profileId
        info = NVML.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, made, 0)
        assert info.multiprocessorCount == spec.sm_count
    finally:
        undo()


def test_a_gpu_that_is_another_one_by_now_is_neither_read_nor_changed(machine: Machine) -> None:
    before = machine.driver.observe()
    incidents.reboot(machine.path, order=[1, 0, 2, 3])

    with pytest.raises(RefusedError, match="GPU 0 is GPU-"):
        machine.driver.processes(before[0])
    with pytest.raises(RefusedError, match="GPU 1 is GPU-"):
        machine.driver.create_gpu_instance(before[1].uuid, Instance(start=0, size=1, profile="1g.10gb"))

"""The NVML driver on the simulated driver beneath the unmodified binding."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nodeagent.hardware.driver import (
    ChangedError,
    DriverError,
    DriverGoneError,
    GpuProcess,
    Health,
    InUseError,
    MigMode,
    ObservedGpu,
    RefusedError,
)
from nodeagent.hardware.nvml import NvmlDriver
from partitioning.layouts import Instance
from partitioning.models import GpuModel, known_models, model_for_product
from sandbox.driver import faults, incidents, processes
from sandbox.driver.install import install
from sandbox.driver.machine import GpuOptions, create
from sandbox.driver.state import Quirks
from sandbox.driver.status import Status


def model(product: str) -> GpuModel:
    found = model_for_product(product)
    assert found is not None
    return found


H100 = model("NVIDIA-H100-80GB-HBM3")
T4 = model("Tesla-T4")
QUIRKS: list[Quirks] = [{}, {"compute_info_device": "mig", "mig_index_gaps": True, "compute_variants": True}]
COMPUTE_PROFILES = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
NVML: Any = pynvml


class Machine:
    """A simulated machine and the driver under test on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = NvmlDriver()

    def gpu(self, index: int = 0) -> ObservedGpu:
        return self.driver.observe()[index]


@pytest.fixture(params=QUIRKS, ids=["by-the-header", "other-answers"])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    cut: GpuOptions = {"mig_enabled": True, "instances": [("3g.40gb", 4)]}
    path = tmp_path / "machine.json"
    gpus: list[tuple[GpuModel, GpuOptions]] = [(H100, cut), (H100, {"mig_enabled": True}), (T4, {}), (H100, {})]
    store = create(path, gpus, "seed", quirks=request.param)
    undo = install(store)
    yield Machine(path)
    undo()


def make(machine: Machine, placed: Instance, index: int = 0) -> int:
    uuid = machine.gpu(index).uuid
    identity = machine.driver.create_gpu_instance(uuid, placed)
    machine.driver.create_compute_instance(uuid, identity)
    return identity


def test_observes_models_modes_and_instances(machine: Machine) -> None:
    cut, empty, t4, plain = machine.driver.observe()

    assert [gpu.index for gpu in (cut, empty, t4, plain)] == [0, 1, 2, 3]
    assert cut.uuid.startswith("GPU-")
    assert cut.mig_mode is MigMode.ENABLED
    assert plain.mig_mode is MigMode.DISABLED
    assert t4.mig_mode is MigMode.NOT_SUPPORTED
    assert t4.model is not None
    assert not t4.model.mig_capable
    assert str(cut.layout) == "3g.40gb at 4"
    assert (cut.instances[0].uuid or "").startswith("MIG-")
    assert cut.health is Health.OK
    assert len(empty.layout) == 0
    assert cut.problem == ""


def test_reports_the_placements_of_nvml(machine: Machine) -> None:
    reported = machine.gpu().model
    assert reported is not None

    assert reported.compute_capability == (9, 0)
    assert {spec.name: (spec.size, spec.starts) for spec in reported.profiles} == {
        spec.name: (spec.size, spec.starts) for spec in H100.profiles
    }


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


@pytest.mark.parametrize("model", [m for m in known_models() if m.mig_capable and m.confirmed], ids=lambda m: m.key)
def test_every_placement_of_every_model(tmp_path: Path, model: GpuModel) -> None:
    undo = install(create(tmp_path / "m.json", [(model, {"mig_enabled": True})], "seed"))
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


def test_a_gpu_instance_without_compute_instance_is_half_made(machine: Machine) -> None:
    placed = Instance(start=0, size=1, profile="1g.10gb")
    machine.driver.create_gpu_instance(machine.gpu().uuid, placed)

    found = machine.gpu().at(placed)

    assert found is not None
    assert found.half_made
    assert found.uuid is None


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


def test_mps_clients_are_distinguished_from_other_processes(machine: Machine) -> None:
    gpu = machine.gpu(2)
    processes.attach(machine.path, gpu.uuid, 7, 100, mps=True)
    processes.attach(machine.path, gpu.uuid, 8, 100)

    assert machine.driver.processes(gpu) == (GpuProcess(pid=7, mps_client=True), GpuProcess(pid=8))


def test_a_lost_gpu_does_not_hide_the_others(machine: Machine) -> None:
    lost = machine.gpu(1).uuid
    incidents.lose(machine.path, lost)

    gpus = machine.driver.observe()

    assert gpus[1].uuid == lost
    assert gpus[1].health is Health.UNHEALTHY
    assert gpus[1].problem
    assert [gpu.problem for gpu in gpus if gpu.index != 1] == ["", "", ""]
    with pytest.raises(DriverError):
        machine.driver.create_gpu_instance(lost, Instance(start=0, size=1, profile="1g.10gb"))


def test_a_failed_row_remap_is_unhealthy(machine: Machine) -> None:
    incidents.remap_rows(machine.path, machine.gpu().uuid, failed=True)

    assert machine.gpu().health is Health.UNHEALTHY


def test_a_driver_that_is_loaded_late_is_found(machine: Machine) -> None:
    incidents.set_driver_loaded(machine.path, False)
    with pytest.raises(DriverGoneError):
        machine.driver.observe()

    incidents.set_driver_loaded(machine.path, True)

    assert len(machine.driver.observe()) == 4


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


def test_a_library_that_is_no_longer_initialised_is_initialised_again(machine: Machine) -> None:
    machine.driver.observe()
    NVML.nvmlShutdown()
    with pytest.raises(DriverGoneError):
        machine.driver.observe_gpu(0)

    assert machine.driver.observe_gpu(0).problem == ""


def test_errors_keep_what_was_attempted_and_their_cause(machine: Machine) -> None:
    faults.inject(machine.path, "nvmlGpuInstanceDestroy", faults.Action.FAIL, status=Status.IN_USE, times=1)
    gpu = machine.gpu()
    instance = gpu.instances[0]
    machine.driver.destroy_compute_instance(gpu.uuid, instance, instance.compute[0])

    with pytest.raises(InUseError, match=r"destroying 3g\.40gb at 4") as caught:
        machine.driver.destroy_gpu_instance(gpu.uuid, instance)

    assert caught.value.__cause__ is not None
    machine.driver.destroy_gpu_instance(gpu.uuid, instance)
    assert machine.gpu().instances == ()


def test_every_mig_device_has_its_own_uuid_and_processes(machine: Machine) -> None:
    make(machine, Instance(start=0, size=2, profile="2g.20gb"))
    gpu = machine.gpu()
    small, large = gpu.instances
    assert small.uuid is not None
    assert large.uuid is not None
    assert small.uuid != large.uuid
    assert all(uuid.startswith("MIG-") for uuid in (small.uuid, large.uuid))
    processes.attach(machine.path, large.uuid, 4242, 100)

    assert machine.driver.processes(gpu) == (GpuProcess(pid=4242, instance=large.id),)


def test_a_uuid_that_is_not_of_a_mig_device_is_never_believed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = NVML.nvmlDeviceGetUUID

    def of_the_parent(device: Any) -> Any:
        mig = NVML.nvmlDeviceIsMigDeviceHandle(device)
        return uuid(NVML.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device) if mig else device)

    monkeypatch.setattr(NVML, "nvmlDeviceGetUUID", of_the_parent)

    gpu = machine.gpu()
    assert "does not begin with MIG-" in gpu.problem
    assert gpu.instances == ()


def test_an_instance_whose_mig_device_is_not_listed_is_a_problem(machine: Machine) -> None:
    faults.inject(
        machine.path,
        "nvmlDeviceGetMigDeviceHandleByIndex",
        faults.Action.FAIL,
        status=Status.NOT_FOUND,
        times=faults.ALWAYS,
    )

    assert "/dev/nvidia-caps" in machine.gpu().problem


def test_refused_compute_profiles_are_a_problem_and_are_not_remembered(machine: Machine) -> None:
    faults.inject(
        machine.path, f"{COMPUTE_PROFILES}V", faults.Action.FAIL, status=Status.INVALID_ARGUMENT, times=faults.ALWAYS
    )
    assert "reading the compute instance profiles of 3g.40gb" in machine.gpu().problem

    faults.clear(machine.path)

    assert machine.gpu().problem == ""
    assert machine.gpu().instances[0].uuid is not None


@pytest.mark.parametrize("asked", [1, 2])
def test_an_instance_that_goes_while_its_profiles_are_read_leaves_no_partial_answer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """After the first answers every further index is refused, as by the handle of an instance that is gone."""
    placed = Instance(start=0, size=4, profile="3g.40gb")
    machine.driver.create_gpu_instance(machine.gpu(1).uuid, placed)
    driver = machine.driver = NvmlDriver()
    profile_info = NVML.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def goes(instance: Any, index: int, engine: int) -> Any:
        if index == asked and NVML.nvmlGpuInstanceGetInfo(instance).id == 1:
            NVML.nvmlGpuInstanceDestroy(instance)
        return profile_info(instance, index, engine)

    monkeypatch.setattr(NVML, COMPUTE_PROFILES, goes)
    assert driver.observe()[1].problem
    monkeypatch.undo()

    make(machine, placed, index=1)
    assert machine.gpu(1).instances[0].uuid is not None


def test_refused_profiles_are_a_problem_while_mig_mode_is_on(machine: Machine) -> None:
    """An empty list of profiles would read as a GPU without instances."""
    faults.inject(
        machine.path,
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        faults.Action.FAIL,
        status=Status.NOT_SUPPORTED,
        times=faults.ALWAYS,
    )
    assert [bool(gpu.problem) for gpu in machine.driver.observe()] == [True, True, False, False]

    faults.clear(machine.path)

    assert str(machine.gpu().layout) == "3g.40gb at 4"


def test_empty_placements_are_not_remembered(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NVML, "nvmlDeviceGetGpuInstancePossiblePlacements", lambda *_: None)
    machine.driver.observe()
    monkeypatch.undo()

    make(machine, Instance(start=0, size=4, profile="3g.40gb"), index=1)
    assert str(machine.gpu(1).layout) == "3g.40gb at 0"
    reported = machine.gpu(1).model
    assert reported is not None
    assert all(spec.starts for spec in reported.profiles)


@pytest.mark.parametrize("profile", ["1g.20gb", "7g.80gb"])
def test_of_several_full_compute_profiles_the_one_with_most_multiprocessors_is_made(
    tmp_path: Path, profile: str
) -> None:
    undo = install(
        create(tmp_path / "m.json", [(H100, {"mig_enabled": True})], "seed", quirks={"compute_variants": True})
    )
    try:
        machine, spec = Machine(tmp_path / "m.json"), H100.profile(profile)
        assert spec is not None
        make(machine, Instance(start=0, size=spec.size, profile=profile))
        device = NVML.nvmlDeviceGetMigDeviceHandleByIndex(NVML.nvmlDeviceGetHandleByIndex(0), 0)
        assert NVML.nvmlDeviceGetAttributes(device).multiprocessorCount == spec.sm_count
    finally:
        undo()


def test_a_gpu_that_is_another_one_by_now_is_neither_read_nor_changed(machine: Machine) -> None:
    before = machine.driver.observe()
    incidents.reboot(machine.path, order=[1, 0, 2, 3])

    with pytest.raises(RefusedError, match="GPU 0 is GPU-"):
        machine.driver.processes(before[0])
    with pytest.raises(RefusedError, match="GPU 1 is GPU-"):
        machine.driver.create_gpu_instance(before[1].uuid, Instance(start=0, size=1, profile="1g.10gb"))


def test_processes_need_no_earlier_observation_by_the_same_driver(machine: Machine) -> None:
    assert NvmlDriver().processes(machine.gpu()) == ()


def test_version(machine: Machine) -> None:
    assert machine.driver.version().startswith("580.")

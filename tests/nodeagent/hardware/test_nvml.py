"""What the NVML driver observes, on the simulated driver beneath the unmodified binding."""

import threading
from typing import Any

import pytest

from nodeagent.hardware.driver import (
    DriverError,
    DriverGoneError,
    GpuProcess,
    Health,
    MigMode,
)
from nodeagent.hardware.nvml import NvmlDriver
from partitioning.layouts import Instance
from sandbox.driver import processes
from sandbox.driver.status import Status
from sandbox.driver.store import Store
from tests import faults, incidents
from tests.builders.models import H100
from tests.nodeagent.hardware.machine import NVML, Machine, make, parent
from tests.waiting import SECONDS

COMPUTE_PROFILES = "nvmlGpuInstanceGetComputeInstanceProfileInfo"


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


def test_a_gpu_instance_without_compute_instance_is_half_made(machine: Machine) -> None:
    placed = Instance(start=0, size=1, profile="1g.10gb")
    machine.driver.create_gpu_instance(machine.gpu().uuid, placed)

    found = machine.gpu().at(placed)

    assert found is not None
    assert found.half_made
    assert found.uuid is None


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


def test_a_library_that_is_no_longer_initialised_is_initialised_again(machine: Machine) -> None:
    machine.driver.observe()
    NVML.nvmlShutdown()
    with pytest.raises(DriverGoneError):
        machine.driver.observe_gpu(0)

    assert machine.driver.observe_gpu(0).problem == ""


def test_a_released_driver_is_closed_however_often_it_was_opened_and_opens_again(machine: Machine) -> None:
    machine.driver.observe()
    faults.inject(machine.path, "nvmlDeviceGetCount_v2", status=Status.DRIVER_NOT_LOADED)
    with pytest.raises(DriverGoneError):
        machine.driver.count()
    machine.driver.observe()

    for _ in range(2):
        machine.driver.release()
        with pytest.raises(NVML.NVMLError_Uninitialized):
            NVML.nvmlDeviceGetCount()

    assert len(machine.driver.observe()) == 4


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
        return uuid(parent(device))

    monkeypatch.setattr(NVML, "nvmlDeviceGetUUID", of_the_parent)

    gpu = machine.gpu()
    assert "reading the UUID of a MIG device" in gpu.problem
    assert gpu.instances == ()


def test_an_instance_whose_mig_device_is_not_listed_is_a_problem(machine: Machine) -> None:
    faults.inject(
        machine.path,
        "nvmlDeviceGetMigDeviceHandleByIndex",
        status=Status.NOT_FOUND,
        times=faults.ALWAYS,
    )

    assert "/dev/nvidia-caps" in machine.gpu().problem


def test_refused_compute_profiles_are_a_problem_and_are_not_kept(machine: Machine) -> None:
    faults.inject(machine.path, f"{COMPUTE_PROFILES}V", status=Status.INVALID_ARGUMENT, times=faults.ALWAYS)
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
        status=Status.NOT_SUPPORTED,
        times=faults.ALWAYS,
    )
    assert [bool(gpu.problem) for gpu in machine.driver.observe()] == [True, True, False, False]

    faults.clear(machine.path)

    assert str(machine.gpu().layout) == "3g.40gb at 4"


def test_empty_placements_are_not_kept(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NVML, "nvmlDeviceGetGpuInstancePossiblePlacements", lambda *_: None)
    machine.driver.observe()
    monkeypatch.undo()

    make(machine, Instance(start=0, size=4, profile="3g.40gb"), index=1)
    assert str(machine.gpu(1).layout) == "3g.40gb at 0"
    reported = machine.gpu(1).model
    assert reported is not None
    assert all(spec.starts for spec in reported.profiles)


def test_processes_need_no_earlier_observation_by_the_same_driver(machine: Machine) -> None:
    assert NvmlDriver().processes(machine.gpu()) == ()


def test_version(machine: Machine) -> None:
    assert machine.driver.version().startswith("580.")


def test_a_missing_library_names_what_an_installation_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise NVML.NVMLError(NVML.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(NVML, "nvmlInit", absent)
    with pytest.raises(DriverGoneError, match=r"Library Not Found: .* nodes.runtimeClassName to nvidia"):
        NvmlDriver().count()


def test_profiles_are_read_again_in_another_mig_mode(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are promised to stay for as long as the mode does."""
    real = NVML.nvmlDeviceGetGpuInstanceProfileInfo

    grown = 0

    def growing(handle: Any, index: int) -> Any:
        found = real(handle, index)
        found.memorySizeMB += grown
        return found

    monkeypatch.setattr(NVML, "nvmlDeviceGetGpuInstanceProfileInfo", growing)

    def memory_mib() -> int:
        model = machine.gpu(3).model
        assert model is not None
        return model.profiles[0].memory_mib or 0

    off = memory_mib()
    for grown, enabled in ((1, True), (2, False), (3, True)):
        with Store(machine.path).writing() as raw:
            raw["gpus"][3]["mig_mode"] = raw["gpus"][3]["mig_mode_pending"] = enabled
        assert memory_mib() == off + grown


def test_the_library_is_opened_once_by_threads_that_begin_together(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed as often as this process knows of, it lets the driver go."""
    real, inside, go = NVML.nvmlInit, threading.Semaphore(0), threading.Event()

    def slow() -> None:
        inside.release()
        go.wait(10)
        real()

    monkeypatch.setattr(NVML, "nvmlInit", slow)
    threads = [threading.Thread(target=machine.driver.observe_gpu, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    assert inside.acquire(timeout=SECONDS)
    assert not inside.acquire(timeout=0.2), "the other thread waits"
    go.set()
    for thread in threads:
        thread.join(10)

    machine.driver.release()
    with pytest.raises(NVML.NVMLError_Uninitialized):
        NVML.nvmlDeviceGetCount()


@pytest.mark.parametrize("answer", [b"\xff", None], ids=["garbled", "missing"])
def test_a_driver_without_a_version_is_read_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    def version() -> str:
        if answer is None:
            raise NVML.NVMLError_NotSupported
        return answer.decode()

    monkeypatch.setattr(NVML, "nvmlSystemGetDriverVersion", version)
    assert machine.driver.version() == ""

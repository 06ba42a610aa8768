"""What a device reports: identity, processes, health; and a device that is lost."""

import pytest

from sandbox.driver import processes
from sandbox.driver.processes import UnknownDeviceError
from tests import incidents
from tests.sandbox.driver.calls import code_of, create, gpu, mig_handle, nvml
from tests.sandbox.driver.conftest import Simulate

MIB = 1 << 20
NO_INSTANCE = 0xFFFFFFFF
GPU_IS_LOST = 15


def test_a_card_tells_what_it_is(simulate: Simulate) -> None:
    simulate("A100-40GB", "H100-80GB")
    assert nvml.nvmlSystemGetDriverVersion() == "580.126.09"
    assert nvml.nvmlDeviceGetCount() == 2
    first, second = gpu(0), gpu(1)
    assert nvml.nvmlDeviceGetName(first) == "NVIDIA A100-SXM4-40GB"
    assert nvml.nvmlDeviceGetCudaComputeCapability(second) == (9, 0)
    assert nvml.nvmlDeviceGetMinorNumber(second) == 1
    assert nvml.nvmlDeviceGetMemoryInfo(second).total == 81559 * MIB


def test_a_mig_device_tells_what_it_is(simulate: Simulate) -> None:
    simulate("H100-80GB", mig_enabled=True)
    created = create(gpu(), 9, (4, 4))
    mig = mig_handle(created.uuid)
    assert nvml.nvmlDeviceGetName(mig).endswith(" MIG 3g.40gb")
    assert nvml.nvmlDeviceGetUUID(mig) == created.uuid
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 7


def test_parent_handles_are_refused_where_a_mig_device_is_asked_for(simulate: Simulate) -> None:
    simulate("H100-80GB", mig_enabled=True)
    assert code_of(nvml.nvmlDeviceGetGpuInstanceId, gpu()) == 2
    assert code_of(nvml.nvmlDeviceGetComputeInstanceId, gpu()) == 2
    mig = mig_handle(create(gpu(), 19).uuid)
    assert code_of(nvml.nvmlDeviceGetMigMode, mig) == 2


def test_processes_show_where_they_run(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "H100-80GB", mig_enabled=True)
    mig = create(gpu(), 19)
    processes.attach(path, mig.uuid, 4242, 100)
    processes.attach(path, nvml.nvmlDeviceGetUUID(gpu(1)), 77, 9000, mps=True)
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(mig_handle(mig.uuid))
    assert [(p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId) for p in listed] == [
        (4242, 100 * MIB, mig.gpu_instance, 0)
    ]
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu(0))] == [4242]
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu(0)) == []
    (client,) = nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu(1))
    assert (client.pid, client.gpuInstanceId) == (77, NO_INSTANCE)
    assert nvml.nvmlDeviceGetMemoryInfo(mig_handle(mig.uuid)).used == 100 * MIB
    processes.attach(path, mig.uuid, 4242, 200)  # the same process again
    assert nvml.nvmlDeviceGetMemoryInfo(gpu(0)).used == 200 * MIB
    processes.detach(path, 4242)
    processes.detach(path, 4242)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu(0)) == []


def test_a_process_needs_a_device_that_is_there(simulate: Simulate) -> None:
    path = simulate("H100-80GB")
    with pytest.raises(UnknownDeviceError, match="MIG-nope"):
        processes.attach(path, "MIG-nope", 1, 1)


def test_memory_health(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "T4")
    uuid = nvml.nvmlDeviceGetUUID(gpu())
    assert nvml.nvmlDeviceGetRemappedRows(gpu()) == (0, 0, 0, 0)
    incidents.remap_rows(path, uuid, pending=True)
    assert nvml.nvmlDeviceGetRemappedRows(gpu()) == (0, 1, 1, 0)
    assert code_of(nvml.nvmlDeviceGetRemappedRows, gpu(1)) == 3  # no row remapping before Ampere


def test_a_lost_gpu_says_so_and_leaves_the_others_alone(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "H100-80GB", mig_enabled=True)
    device, uuid = gpu(0), nvml.nvmlDeviceGetUUID(gpu(0))
    mig = mig_handle(create(device, 19).uuid)
    incidents.lose(path, uuid)
    assert code_of(nvml.nvmlDeviceGetMigMode, device) == GPU_IS_LOST
    assert code_of(nvml.nvmlDeviceGetName, mig) == GPU_IS_LOST
    assert code_of(nvml.nvmlDeviceGetHandleByIndex, 0) == GPU_IS_LOST
    assert nvml.nvmlDeviceGetMigMode(gpu(1)) == [1, 1]
    assert nvml.nvmlDeviceGetCount() == 2

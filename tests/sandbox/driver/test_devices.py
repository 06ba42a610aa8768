"""What a device says of itself, who runs on it, how healthy it is, and what befalls it."""

from __future__ import annotations

import threading

import pytest

from sandbox.driver import incidents, processes
from sandbox.driver.processes import UnknownDeviceError
from tests.sandbox.driver.calls import code_of, create, gpu, nvml
from tests.sandbox.driver.conftest import Simulate

MIB = 1 << 20
NO_INSTANCE = 0xFFFFFFFF
TIMEOUT, GPU_IS_LOST = 10, 15


def test_a_card_tells_what_it_is(simulate: Simulate) -> None:
    simulate("A100-40GB", "H100-80GB")
    assert nvml.nvmlSystemGetDriverVersion() == "580.126.09"
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    assert nvml.nvmlDeviceGetCount() == 2
    first, second = gpu(0), gpu(1)
    assert nvml.nvmlDeviceGetName(first) == "NVIDIA A100-SXM4-40GB"
    assert nvml.nvmlDeviceGetCudaComputeCapability(second) == (9, 0)
    assert nvml.nvmlDeviceGetArchitecture(second) == nvml.NVML_DEVICE_ARCH_HOPPER
    assert (nvml.nvmlDeviceGetIndex(second), nvml.nvmlDeviceGetMinorNumber(second)) == (1, 1)
    pci = nvml.nvmlDeviceGetPciInfo(first)
    assert (pci.busId, pci.busIdLegacy, pci.pciDeviceId) == ("00000000:07:00.0", "0000:07:00.0", 0x20B010DE)
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByPciBusId("0000:0f:00.0")) == nvml.nvmlDeviceGetUUID(second)
    assert nvml.nvmlDeviceGetMemoryInfo(second).total == 81559 * MIB
    assert nvml.nvmlDeviceGetMemoryInfo(second, nvml.nvmlMemory_v2).free == 81559 * MIB


def test_a_mig_device_tells_what_it_is(simulate: Simulate) -> None:
    simulate("H100-80GB", mig_enabled=True)
    created = create(gpu(), 9, (4, 4))
    other = create(gpu(), 19, (0, 1))
    mig = nvml.nvmlDeviceGetHandleByUUID(created.uuid)
    assert nvml.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert nvml.nvmlDeviceGetIndex(mig) == 0  # by GPU instance id: 2 comes before 7
    assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(other.uuid)) == 1
    attributes = nvml.nvmlDeviceGetAttributes(mig)
    assert (attributes.gpuInstanceSliceCount, attributes.multiprocessorCount) == (3, 60)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(gpu())
    old_form = f"MIG-{nvml.nvmlDeviceGetUUID(gpu())}/{created.gpu_instance}/{created.compute_instance}"
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(old_form)) == created.uuid
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 7


def test_parent_handles_are_refused_where_a_mig_device_is_asked_for(simulate: Simulate) -> None:
    simulate("H100-80GB", mig_enabled=True)
    assert code_of(nvml.nvmlDeviceGetGpuInstanceId, gpu()) == 2
    assert code_of(nvml.nvmlDeviceGetComputeInstanceId, gpu()) == 2
    assert code_of(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpu()) == 2
    assert code_of(nvml.nvmlDeviceGetAttributes, gpu()) == 3
    mig = nvml.nvmlDeviceGetHandleByUUID(create(gpu(), 19).uuid)
    assert code_of(nvml.nvmlDeviceGetMigMode, mig) == 2


def test_processes_show_where_they_run(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "H100-80GB", mig_enabled=True)
    mig = create(gpu(), 19)
    processes.attach(path, mig.uuid, 4242, 100)
    processes.attach(path, nvml.nvmlDeviceGetUUID(gpu(1)), 77, 9000, mps=True)
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByUUID(mig.uuid))
    assert [(p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId) for p in listed] == [
        (4242, 100 * MIB, mig.gpu_instance, 0)
    ]
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu(0))] == [4242]
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu(0)) == []
    (client,) = nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu(1))
    assert (client.pid, client.gpuInstanceId) == (77, NO_INSTANCE)
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(mig.uuid)).used == 100 * MIB
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
    assert nvml.nvmlDeviceGetEccMode(gpu()) == [1, 1]
    incidents.remap_rows(path, uuid, pending=True)
    incidents.raise_double_bit_error(path, uuid)
    assert nvml.nvmlDeviceGetRemappedRows(gpu()) == (0, 1, 1, 0)
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu(), 1, 0) == 1
    assert code_of(nvml.nvmlDeviceGetRemappedRows, gpu(1)) == 3  # no row remapping before Ampere


def test_events_reach_who_waits(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "H100-80GB")
    uuid = nvml.nvmlDeviceGetUUID(gpu(1))
    incidents.raise_xid(path, uuid, 13)  # before anybody registered: not told
    event_set = nvml.nvmlEventSetCreate()
    for index in (0, 1):
        nvml.nvmlDeviceRegisterEvents(gpu(index), nvml.nvmlEventTypeXidCriticalError, event_set)
    assert code_of(nvml.nvmlEventSetWait, event_set, 30) == TIMEOUT
    later = threading.Timer(0.05, incidents.raise_xid, (path, uuid, 79))
    later.start()
    event = nvml.nvmlEventSetWait(event_set, 20_000)
    later.join()
    assert (event.eventData, event.gpuInstanceId) == (79, NO_INSTANCE)
    assert nvml.nvmlDeviceGetUUID(event.device) == uuid
    assert code_of(nvml.nvmlEventSetWait, event_set, 0) == TIMEOUT  # told once
    nvml.nvmlEventSetFree(event_set)
    assert code_of(nvml.nvmlEventSetWait, event_set, 0) == 2


def test_only_supported_events_can_be_registered(simulate: Simulate) -> None:
    simulate("H100-80GB")
    event_set = nvml.nvmlEventSetCreate()
    unknown = ~nvml.nvmlDeviceGetSupportedEventTypes(gpu()) & 0xFFFF
    assert code_of(nvml.nvmlDeviceRegisterEvents, gpu(), unknown, event_set) == 3


def test_a_lost_gpu_says_so_and_leaves_the_others_alone(simulate: Simulate) -> None:
    path = simulate("H100-80GB", "H100-80GB", mig_enabled=True)
    device, uuid = gpu(0), nvml.nvmlDeviceGetUUID(gpu(0))
    mig = nvml.nvmlDeviceGetHandleByUUID(create(device, 19).uuid)
    incidents.lose(path, uuid)
    assert code_of(nvml.nvmlDeviceGetMigMode, device) == GPU_IS_LOST
    assert code_of(nvml.nvmlDeviceGetName, mig) == GPU_IS_LOST
    assert code_of(nvml.nvmlDeviceGetHandleByUUID, uuid) == GPU_IS_LOST
    assert code_of(nvml.nvmlDeviceGetHandleByIndex, 0) == GPU_IS_LOST
    assert nvml.nvmlDeviceGetMigMode(gpu(1)) == [1, 1]
    assert nvml.nvmlDeviceGetCount() == 2

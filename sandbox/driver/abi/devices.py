"""Exports the start of the library, and identity, memory, processes and row remapping of GPUs and MIG devices."""

import pynvml

from sandbox.driver.abi.handles import Device, Handle, any_device, device_handle, mig_handle, parent_device
from sandbox.driver.abi.pointers import Address, get_uint, put_int, put_pointer, put_struct, put_text, put_uint
from sandbox.driver.abi.registry import HANDLE, INT, OUT, UINT, reads, writes
from sandbox.driver.boards import board_of
from sandbox.driver.compute_instances import mig_device_profile, mig_device_slots, mig_device_uuid
from sandbox.driver.state import Machine, ProcessState
from sandbox.driver.status import Status, given, require

MIB = 1 << 20
NO_INSTANCE = 0xFFFFFFFF
COMPUTE_MODES = (0, 2, 3)  # default, prohibited, exclusive process


@reads(UINT, initialises=1)
def nvmlInitWithFlags(machine: Machine, flags: int) -> None:  # noqa: ARG001 - C signature
    require(machine["driver_loaded"], Status.DRIVER_NOT_LOADED)


@reads(initialises=-1)
def nvmlShutdown(_: Machine) -> None:
    pass


@reads(OUT, UINT)
def nvmlSystemGetDriverVersion(machine: Machine, text: Address, length: int) -> None:
    put_text(text, length, machine["driver_version"])


@reads(OUT)
def nvmlDeviceGetCount_v2(machine: Machine, count: Address) -> None:
    put_uint(count, len(machine["gpus"]))


@reads(UINT, OUT)
def nvmlDeviceGetHandleByIndex_v2(machine: Machine, index: int, handle: Handle) -> None:
    require(index < len(machine["gpus"]), Status.INVALID_ARGUMENT)
    require(not machine["gpus"][index]["lost"], Status.GPU_IS_LOST)
    put_pointer(handle, device_handle(index))


@reads(HANDLE, OUT, UINT)
def nvmlDeviceGetName(machine: Machine, handle: Handle, text: Address, length: int) -> None:
    device = any_device(machine, handle)
    parts = device.parts()
    suffix = f" MIG {mig_device_profile(device.gpu, *parts)}" if parts else ""
    put_text(text, length, device.gpu["name"] + suffix)


@reads(HANDLE, OUT, UINT)
def nvmlDeviceGetUUID(machine: Machine, handle: Handle, text: Address, length: int) -> None:
    device = any_device(machine, handle)
    parts = device.parts()
    put_text(text, length, mig_device_uuid(device.gpu, *parts) if parts else device.gpu["uuid"])


@reads(HANDLE, OUT)
def nvmlDeviceGetMinorNumber(machine: Machine, handle: Handle, minor: Address) -> None:
    put_uint(minor, parent_device(machine, handle).gpu["minor"])


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetCudaComputeCapability(machine: Machine, handle: Handle, major: Address, minor: Address) -> None:
    capability = board_of(any_device(machine, handle).gpu).model.compute_capability
    put_int(major, capability[0])
    put_int(minor, capability[1])


@reads(HANDLE, OUT)
def nvmlDeviceGetComputeMode(machine: Machine, handle: Handle, mode: Address) -> None:
    put_int(mode, any_device(machine, handle).gpu["compute_mode"])


@writes(HANDLE, INT)
def nvmlDeviceSetComputeMode(machine: Machine, handle: Handle, mode: int) -> None:
    gpu = parent_device(machine, handle).gpu
    require(mode in COMPUTE_MODES, Status.INVALID_ARGUMENT)
    require(not gpu["mig_mode"], Status.NOT_SUPPORTED)
    gpu["compute_mode"] = mode


@reads(HANDLE, OUT)
def nvmlDeviceGetVirtualizationMode(machine: Machine, handle: Handle, mode: Address) -> None:
    """No virtual machine."""
    parent_device(machine, handle)
    put_uint(mode, pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE)


@reads(HANDLE, OUT)
def nvmlDeviceGetMemoryInfo(machine: Machine, handle: Handle, info: Address) -> None:
    total_mib, used_mib = memory(any_device(machine, handle))
    numbers = pynvml.c_nvmlMemory_t()
    numbers.total, numbers.used, numbers.free = total_mib * MIB, used_mib * MIB, (total_mib - used_mib) * MIB
    put_struct(info, numbers)


def memory(device: Device) -> tuple[int, int]:
    """Total and used MiB. The compute instances of a GPU instance share its memory."""
    if device.instance is None:
        return device.gpu["memory_mib"], sum(process["memory_mib"] for process in device.gpu["processes"])
    board = board_of(device.gpu)
    identifier = device.instance["id"]
    used = sum(p["memory_mib"] for p in device.gpu["processes"] if p["gpu_instance"] == identifier)
    return board.memory_of(board.by_name(device.instance["profile"])), used


@reads(HANDLE, OUT)
def nvmlDeviceGetGpuInstanceId(machine: Machine, handle: Handle, identifier: Address) -> None:
    put_uint(identifier, given(any_device(machine, handle).parts(), Status.INVALID_ARGUMENT)[0]["id"])


@reads(HANDLE, OUT)
def nvmlDeviceGetComputeInstanceId(machine: Machine, handle: Handle, identifier: Address) -> None:
    put_uint(identifier, given(any_device(machine, handle).parts(), Status.INVALID_ARGUMENT)[1]["id"])


@reads(HANDLE, OUT)
def nvmlDeviceGetMaxMigDeviceCount(machine: Machine, handle: Handle, count: Address) -> None:
    """0 while the mode is off, and on a GPU without MIG."""
    gpu = parent_device(machine, handle).gpu
    profiles = board_of(gpu).model.profiles if gpu["mig_mode"] else ()
    put_uint(count, max((spec.max_instances for spec in profiles), default=0))


@reads(HANDLE, UINT, OUT)
def nvmlDeviceGetMigDeviceHandleByIndex(machine: Machine, handle: Handle, index: int, found: Address) -> None:
    device = parent_device(machine, handle)
    board = board_of(device.gpu)
    require(board.mig, Status.NOT_SUPPORTED)
    slots = mig_device_slots(device.gpu)
    require(not device.gpu["mig_mode"] or index < len(slots), Status.INVALID_ARGUMENT)
    parts = given(slots[index] if index < len(slots) else None, Status.NOT_FOUND)
    put_pointer(found, mig_handle(device.index, *parts))


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetComputeRunningProcesses_v3(machine: Machine, handle: Handle, count: Address, array: Address) -> None:
    _put_processes([p for p in _listed(machine, handle) if not p["graphics"]], count, array)


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetMPSComputeRunningProcesses_v3(
    machine: Machine, handle: Handle, count: Address, array: Address
) -> None:
    _put_processes([p for p in _listed(machine, handle) if p["mps"]], count, array)


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetGraphicsRunningProcesses_v3(machine: Machine, handle: Handle, count: Address, array: Address) -> None:
    _put_processes([p for p in _listed(machine, handle) if p["graphics"]], count, array)


@reads(HANDLE, OUT, OUT, OUT, OUT)
def nvmlDeviceGetRemappedRows(machine: Machine, handle: Handle, *addresses: Address) -> None:
    """Corrected, uncorrected, pending and failed."""
    gpu = parent_device(machine, handle).gpu
    require(board_of(gpu).row_remapping, Status.NOT_SUPPORTED)
    for address, value in zip(addresses, gpu["remapped_rows"], strict=True):
        put_uint(address, value)


def _listed(machine: Machine, handle: Handle) -> list[ProcessState]:
    """Clients of MPS compute too. On a parent handle come those of all its instances."""
    device = any_device(machine, handle)
    parts = device.parts()
    place = (parts[0]["id"], parts[1]["id"]) if parts else None
    return [
        process
        for process in device.gpu["processes"]
        if not process["hidden"] and (place is None or place == (process["gpu_instance"], process["compute_instance"]))
    ]


def _put_processes(processes: list[ProcessState], count: Address, array: Address) -> None:
    room = get_uint(count)
    put_uint(count, len(processes))
    if not processes:
        return
    require(array and room >= len(processes), Status.INSUFFICIENT_SIZE)
    for position, process in enumerate(processes):
        entry = pynvml.c_nvmlProcessInfo_v2_t()
        entry.pid, entry.usedGpuMemory = process["pid"], process["memory_mib"] * MIB
        gpu_instance, compute_instance = process["gpu_instance"], process["compute_instance"]
        entry.gpuInstanceId = NO_INSTANCE if gpu_instance is None else gpu_instance
        entry.computeInstanceId = NO_INSTANCE if compute_instance is None else compute_instance
        put_struct(array, entry, position)

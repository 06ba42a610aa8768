"""What a device is: name, UUID, place on the bus, memory, compute mode. Of GPUs, and of MIG devices where NVML does."""

from __future__ import annotations

import pynvml

from sandbox.driver.abi.handles import Device, any_device, parent_device
from sandbox.driver.abi.pointers import get_uint, put_int, put_text, put_uint, struct_at
from sandbox.driver.abi.registry import HANDLE, INT, OUT, UINT, reads, writes
from sandbox.driver.abi.session import Session
from sandbox.driver.boards import board_of
from sandbox.driver.compute_instances import mig_device_profile, mig_device_slots, mig_device_uuid
from sandbox.driver.state import MachineState
from sandbox.driver.status import Status, require

EXCLUSIVE_PROCESS = 3
PASSTHROUGH = 1
MIB = 1 << 20


@reads(HANDLE, OUT, UINT)
def nvmlDeviceGetName(_: Session, machine: MachineState, handle: int | None, text: int | None, length: int) -> None:
    device = any_device(machine, handle)
    parts = device.parts()
    suffix = f" MIG {mig_device_profile(device.gpu, *parts)}" if parts else ""
    put_text(text, length, device.gpu["name"] + suffix)


@reads(HANDLE, OUT, UINT)
def nvmlDeviceGetUUID(_: Session, machine: MachineState, handle: int | None, text: int | None, length: int) -> None:
    device = any_device(machine, handle)
    parts = device.parts()
    put_text(text, length, mig_device_uuid(device.gpu, *parts) if parts else device.gpu["uuid"])


@reads(HANDLE, OUT)
def nvmlDeviceGetIndex(_: Session, machine: MachineState, handle: int | None, index: int | None) -> None:
    device = any_device(machine, handle)
    parts = device.parts()
    put_uint(index, mig_device_slots(machine, device.gpu).index(parts) if parts else device.index)


@reads(HANDLE, OUT)
def nvmlDeviceGetMinorNumber(_: Session, machine: MachineState, handle: int | None, minor: int | None) -> None:
    put_uint(minor, parent_device(machine, handle).gpu["minor"])


@reads(HANDLE, OUT, UINT)
def nvmlDeviceGetSerial(_: Session, machine: MachineState, handle: int | None, text: int | None, length: int) -> None:
    put_text(text, length, f"{parent_device(machine, handle).gpu['serial'] % 10**13:013d}")


@reads(HANDLE, OUT)
def nvmlDeviceGetPciInfo_v3(_: Session, machine: MachineState, handle: int | None, info: int | None) -> None:
    gpu = parent_device(machine, handle).gpu
    pci = struct_at(info, pynvml.nvmlPciInfo_t)
    pci.busId, pci.busIdLegacy = gpu["bus_id"], gpu["bus_id"][4:]
    pci.domain, pci.bus, pci.device = int(gpu["bus_id"][:8], 16), int(gpu["bus_id"][9:11], 16), 0
    pci.pciDeviceId = board_of(gpu).pci_device_id


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetCudaComputeCapability(
    _: Session, machine: MachineState, handle: int | None, major: int | None, minor: int | None
) -> None:
    capability = board_of(any_device(machine, handle).gpu).model.compute_capability
    put_int(major, capability[0])
    put_int(minor, capability[1])


@reads(HANDLE, OUT)
def nvmlDeviceGetArchitecture(_: Session, machine: MachineState, handle: int | None, architecture: int | None) -> None:
    put_uint(architecture, board_of(any_device(machine, handle).gpu).architecture)


@reads(HANDLE, OUT)
def nvmlDeviceGetVirtualizationMode(_: Session, machine: MachineState, handle: int | None, mode: int | None) -> None:
    put_uint(mode, PASSTHROUGH if parent_device(machine, handle).gpu["passthrough"] else 0)


@reads(HANDLE, OUT)
def nvmlDeviceGetMemoryInfo(_: Session, machine: MachineState, handle: int | None, info: int | None) -> None:
    total_mib, used_mib = memory(any_device(machine, handle))
    numbers = struct_at(info, pynvml.c_nvmlMemory_t)
    numbers.total, numbers.used, numbers.free = total_mib * MIB, used_mib * MIB, (total_mib - used_mib) * MIB


@reads(HANDLE, OUT)
def nvmlDeviceGetMemoryInfo_v2(_: Session, machine: MachineState, handle: int | None, info: int | None) -> None:
    device = any_device(machine, handle)
    require(get_uint(info) == pynvml.nvmlMemory_v2, Status.ARGUMENT_VERSION_MISMATCH)
    total_mib, used_mib = memory(device)
    numbers = struct_at(info, pynvml.c_nvmlMemory_v2_t)
    numbers.total, numbers.used, numbers.free = total_mib * MIB, used_mib * MIB, (total_mib - used_mib) * MIB
    numbers.reserved = 0


@reads(HANDLE, OUT)
def nvmlDeviceGetComputeMode(_: Session, machine: MachineState, handle: int | None, mode: int | None) -> None:
    put_int(mode, any_device(machine, handle).gpu["compute_mode"])


@writes(HANDLE, INT)
def nvmlDeviceSetComputeMode(_: Session, machine: MachineState, handle: int | None, mode: int) -> None:
    device = any_device(machine, handle)
    require(machine["privileged"], Status.NO_PERMISSION)
    require(mode in (0, 2, EXCLUSIVE_PROCESS), Status.INVALID_ARGUMENT)
    # With MIG on the handle must be a MIG device's, and exclusive process is not offered there.
    mig_device = device.instance is not None
    require(mig_device or not device.gpu["mig_mode"], Status.NOT_SUPPORTED)
    require(not (mig_device and mode == EXCLUSIVE_PROCESS), Status.NOT_SUPPORTED)
    device.gpu["compute_mode"] = mode


@reads(HANDLE, OUT)
def nvmlDeviceGetPersistenceMode(_: Session, machine: MachineState, handle: int | None, mode: int | None) -> None:
    parent_device(machine, handle)
    put_int(mode, 1)


def memory(device: Device) -> tuple[int, int]:
    """Total and used MiB. The compute instances of a GPU instance share its memory."""
    if device.instance is None:
        return device.gpu["memory_mib"], sum(process["memory_mib"] for process in device.gpu["processes"])
    board = board_of(device.gpu)
    identifier = device.instance["id"]
    used = sum(p["memory_mib"] for p in device.gpu["processes"] if p["gpu_instance"] == identifier)
    return board.memory_of(board.by_name(device.instance["profile"])), used

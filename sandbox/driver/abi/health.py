"""Processes on a device, and the health of its memory."""

from __future__ import annotations

import pynvml

from sandbox.driver.abi.handles import any_device, parent_device
from sandbox.driver.abi.pointers import get_uint, put_int, put_uint, put_ulonglong, struct_at
from sandbox.driver.abi.registry import HANDLE, INT, OUT, reads
from sandbox.driver.abi.session import Session
from sandbox.driver.boards import board_of
from sandbox.driver.state import MachineState, ProcessState
from sandbox.driver.status import Refused, Status, require

NO_INSTANCE = 0xFFFFFFFF
UNCORRECTED = 1
MIB = 1 << 20


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetComputeRunningProcesses_v3(
    _: Session, machine: MachineState, handle: int | None, count: int | None, array: int | None
) -> None:
    _put_processes(_listed(machine, handle, mps_only=False), count, array)


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetMPSComputeRunningProcesses_v3(
    _: Session, machine: MachineState, handle: int | None, count: int | None, array: int | None
) -> None:
    _put_processes(_listed(machine, handle, mps_only=True), count, array)


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetGraphicsRunningProcesses_v3(
    _: Session, machine: MachineState, handle: int | None, count: int | None, array: int | None
) -> None:
    any_device(machine, handle)
    _put_processes([], count, array)


@reads(HANDLE, OUT, OUT, OUT, OUT)
def nvmlDeviceGetRemappedRows(_: Session, machine: MachineState, handle: int | None, *addresses: int | None) -> None:
    """Corrected, uncorrected, pending and failed."""
    gpu = parent_device(machine, handle).gpu
    require(board_of(gpu).row_remapping, Status.NOT_SUPPORTED)
    for address, value in zip(addresses, gpu["remapped_rows"], strict=True):
        put_uint(address, value)


@reads(HANDLE, INT, INT, OUT)
def nvmlDeviceGetTotalEccErrors(
    _: Session, machine: MachineState, handle: int | None, error_type: int, counter: int, count: int | None
) -> None:
    gpu = parent_device(machine, handle).gpu
    require(error_type in (0, UNCORRECTED) and counter in (0, 1), Status.INVALID_ARGUMENT)
    put_ulonglong(count, gpu["ecc_uncorrected"] if error_type == UNCORRECTED else 0)


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetEccMode(
    _: Session, machine: MachineState, handle: int | None, current: int | None, pending: int | None
) -> None:
    parent_device(machine, handle)
    put_int(current, 1)
    put_int(pending, 1)


def _listed(machine: MachineState, handle: int | None, *, mps_only: bool) -> list[ProcessState]:
    """Clients of MPS are in both lists. On a parent handle come those of all its instances."""
    device = any_device(machine, handle)
    parts = device.parts()
    place = (parts[0]["id"], parts[1]["id"]) if parts else None
    return [
        process
        for process in device.gpu["processes"]
        if not process["hidden"]
        and (process["mps"] or not mps_only)
        and (place is None or place == (process["gpu_instance"], process["compute_instance"]))
    ]


def _put_processes(processes: list[ProcessState], count: int | None, array: int | None) -> None:
    room = get_uint(count)
    put_uint(count, len(processes))
    if not processes:
        return
    if not array or room < len(processes):
        raise Refused(Status.INSUFFICIENT_SIZE)
    for position, process in enumerate(processes):
        entry = struct_at(array, pynvml.c_nvmlProcessInfo_v2_t, position)
        entry.pid, entry.usedGpuMemory = process["pid"], process["memory_mib"] * MIB
        gpu_instance, compute_instance = process["gpu_instance"], process["compute_instance"]
        entry.gpuInstanceId = NO_INSTANCE if gpu_instance is None else gpu_instance
        entry.computeInstanceId = NO_INSTANCE if compute_instance is None else compute_instance

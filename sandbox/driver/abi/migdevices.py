"""MIG devices: what a compute instance is to a program that wants to run on it."""

from __future__ import annotations

import pynvml

from sandbox.driver.abi.compute import multiprocessors
from sandbox.driver.abi.handles import any_device, device_handle, mig_handle, parent_device
from sandbox.driver.abi.pointers import put_pointer, put_uint, struct_at
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, reads
from sandbox.driver.abi.session import Session
from sandbox.driver.boards import board_of
from sandbox.driver.compute_instances import compute_profile, mig_device_slots
from sandbox.driver.state import MachineState
from sandbox.driver.status import Refused, Status, require


@reads(HANDLE, OUT)
def nvmlDeviceIsMigDeviceHandle(_: Session, machine: MachineState, handle: int | None, answer: int | None) -> None:
    put_uint(answer, any_device(machine, handle).instance is not None)


@reads(HANDLE, OUT)
def nvmlDeviceGetGpuInstanceId(_: Session, machine: MachineState, handle: int | None, identifier: int | None) -> None:
    parts = any_device(machine, handle).parts()
    require(parts, Status.INVALID_ARGUMENT)
    assert parts is not None
    put_uint(identifier, parts[0]["id"])


@reads(HANDLE, OUT)
def nvmlDeviceGetComputeInstanceId(
    _: Session, machine: MachineState, handle: int | None, identifier: int | None
) -> None:
    parts = any_device(machine, handle).parts()
    require(parts, Status.INVALID_ARGUMENT)
    assert parts is not None
    put_uint(identifier, parts[1]["id"])


@reads(HANDLE, OUT)
def nvmlDeviceGetMaxMigDeviceCount(_: Session, machine: MachineState, handle: int | None, count: int | None) -> None:
    """0 while the mode is off, and on a GPU without MIG."""
    gpu = parent_device(machine, handle).gpu
    profiles = board_of(gpu).model.profiles if gpu["mig_mode"] else ()
    put_uint(count, max((spec.max_instances for spec in profiles), default=0))


@reads(HANDLE, UINT, OUT)
def nvmlDeviceGetMigDeviceHandleByIndex(
    _: Session, machine: MachineState, handle: int | None, index: int, found: int | None
) -> None:
    device = parent_device(machine, handle)
    board = board_of(device.gpu)
    require(board.mig, Status.NOT_SUPPORTED)
    slots = mig_device_slots(machine, device.gpu)
    require(index < len(slots), Status.INVALID_ARGUMENT)
    parts = slots[index]
    if parts is None:
        raise Refused(Status.NOT_FOUND)
    put_pointer(found, mig_handle(device.index, *parts))


@reads(HANDLE, OUT)
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    _: Session, machine: MachineState, handle: int | None, parent: int | None
) -> None:
    device = any_device(machine, handle)
    require(device.instance is not None, Status.INVALID_ARGUMENT)
    put_pointer(parent, device_handle(device.index))


@reads(HANDLE, OUT)
def nvmlDeviceGetAttributes_v2(_: Session, machine: MachineState, handle: int | None, answer: int | None) -> None:
    device = any_device(machine, handle)
    parts = device.parts()
    require(parts, Status.NOT_SUPPORTED)
    assert parts is not None
    instance, compute = parts
    board = board_of(device.gpu)
    spec = board.by_name(instance["profile"])
    profile = compute_profile(machine, device.gpu, instance, compute["profile"])
    attributes = struct_at(answer, pynvml.c_nvmlDeviceAttributes)
    attributes.multiprocessorCount = multiprocessors(board, spec, profile)
    attributes.sharedCopyEngineCount = spec.compute_slices
    attributes.sharedDecoderCount = attributes.sharedEncoderCount = 0
    attributes.sharedJpegCount = attributes.sharedOfaCount = 0
    attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount = spec.compute_slices, compute["size"]
    attributes.memorySizeMB = board.memory_of(spec)

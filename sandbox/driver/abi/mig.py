"""The MIG mode, GPU instance profiles and placements, and GPU instances."""

from typing import Any

import pynvml

from partitioning.models import ProfileSpec
from sandbox.driver.abi.handles import Handle, device_handle, gpu_instance, instance_handle, parent_device
from sandbox.driver.abi.pointers import (
    Address,
    checked,
    get_small_struct,
    get_struct,
    get_uint,
    put_pointer,
    put_struct,
    put_uint,
)
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, reads, writes
from sandbox.driver.boards import board_of
from sandbox.driver.gpu_instances import create_gpu_instance, destroy_gpu_instance
from sandbox.driver.state import Machine
from sandbox.driver.status import Refused, Status, given, require

PROFILES_WITH_MODE_OFF = 536  # first driver branch that returns profiles while the MIG mode is off
PROFILE_INFO_V2 = 0x02000098
PROFILE_ENUM_COUNT = 0x11  # of driver 580: constants from here on are no profiles at all


@reads(HANDLE, OUT, OUT)
def nvmlDeviceGetMigMode(machine: Machine, handle: Handle, current: Address, pending: Address) -> None:
    gpu = parent_device(machine, handle).gpu
    require(board_of(gpu).mig, Status.NOT_SUPPORTED)
    put_uint(current, gpu["mig_mode"])
    put_uint(pending, gpu["mig_mode_pending"])


@reads(HANDLE, UINT, OUT)
def nvmlDeviceGetGpuInstanceProfileInfoV(machine: Machine, handle: Handle, index: int, info: Address) -> None:
    require(get_uint(info) == PROFILE_INFO_V2, Status.ARGUMENT_VERSION_MISMATCH)
    answer = get_struct(info, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t)
    spec = gpu_instance_profile_info(machine, handle, index, answer)
    answer.name = f"MIG {spec.name}".encode()
    put_struct(info, answer)


def gpu_instance_profile_info(machine: Machine, handle: Handle, index: int, answer: Any) -> ProfileSpec:
    """Fill in what all versions of the structure have, but the counts of its engines."""
    gpu = parent_device(machine, handle).gpu
    board = board_of(gpu)
    branch = int(machine["driver_version"].split(".")[0])
    require(board.mig and (gpu["mig_mode"] or branch >= PROFILES_WITH_MODE_OFF), Status.NOT_SUPPORTED)
    require(index < PROFILE_ENUM_COUNT, Status.INVALID_ARGUMENT)
    spec = given(board.by_nvml_index(index), Status.NOT_SUPPORTED)
    answer.id, answer.sliceCount = spec.profile_id, spec.compute_slices
    answer.instanceCount, answer.multiprocessorCount = spec.max_instances, board.multiprocessors_of(spec)
    answer.memorySizeMB = board.memory_of(spec)
    return spec


@reads(HANDLE, UINT, OUT, OUT)
def nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    machine: Machine, handle: Handle, profile_id: int, array: Address, count: Address
) -> None:
    """Every placement the profile could ever have, also with the mode off. The array may be null to ask the count."""
    board = board_of(parent_device(machine, handle).gpu)
    require(board.mig, Status.NOT_SUPPORTED)
    spec = given(board.by_id(profile_id), Status.INVALID_ARGUMENT)
    if array:
        for position, start in enumerate(spec.starts):
            put_struct(array, pynvml.c_nvmlGpuInstancePlacement_t(start, spec.size), position)
    put_uint(count, len(spec.starts))


@writes(HANDLE, UINT, OUT, OUT)
def nvmlDeviceCreateGpuInstanceWithPlacement(
    machine: Machine, handle: Handle, profile_id: int, placement: Address, created: Address
) -> None:
    checked(created)
    device = parent_device(machine, handle)
    place = get_small_struct(placement, pynvml.c_nvmlGpuInstancePlacement_t)
    instance = create_gpu_instance(machine, device.gpu, profile_id, (place.start, place.size))
    put_pointer(created, instance_handle(device.index, instance))


@writes(HANDLE)
def nvmlGpuInstanceDestroy(machine: Machine, handle: Handle) -> None:
    device, instance = gpu_instance(machine, handle)
    destroy_gpu_instance(device.gpu, instance)


@reads(HANDLE, UINT, OUT, OUT)
def nvmlDeviceGetGpuInstances(
    machine: Machine, handle: Handle, profile_id: int, array: Address, count: Address
) -> None:
    """The caller's array must hold as many entries as the profile's instance count; null is refused.

    With the mode off there are none, which is no error: seen on an H100 with driver 580.
    """
    device = parent_device(machine, handle)
    require(board_of(device.gpu).mig, Status.NOT_SUPPORTED)
    spec = given(board_of(device.gpu).by_id(profile_id), Status.INVALID_ARGUMENT)
    checked(array)
    found = [instance for instance in device.gpu["gpu_instances"] if instance["profile"] == spec.name]
    for position, instance in enumerate(found):
        put_pointer(array, instance_handle(device.index, instance), position)
    put_uint(count, len(found))


@reads(HANDLE, UINT, OUT)
def nvmlDeviceGetGpuInstanceById(machine: Machine, handle: Handle, identifier: int, found: Address) -> None:
    device = parent_device(machine, handle)
    require(board_of(device.gpu).mig, Status.NOT_SUPPORTED)
    for instance in device.gpu["gpu_instances"]:
        if instance["id"] == identifier:
            put_pointer(found, instance_handle(device.index, instance))
            return
    raise Refused(Status.NOT_FOUND)


@reads(HANDLE, OUT)
def nvmlGpuInstanceGetInfo(machine: Machine, handle: Handle, info: Address) -> None:
    device, instance = gpu_instance(machine, handle)
    answer = get_struct(info, pynvml.c_nvmlGpuInstanceInfo_t)
    answer.id, answer.profileId = instance["id"], board_of(device.gpu).by_name(instance["profile"]).profile_id
    answer.placement.start, answer.placement.size = instance["start"], instance["size"]
    put_struct(info, answer)
    put_pointer(info, device_handle(device.index))  # the first field

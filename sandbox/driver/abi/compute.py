"""Compute instances inside a GPU instance: profiles, placements, creating, listing and destroying them."""

from typing import Any

import pynvml

from partitioning.models import ProfileSpec
from sandbox.driver.abi.handles import (
    Handle,
    compute_handle,
    compute_instance,
    device_handle,
    gpu_instance,
    instance_handle,
)
from sandbox.driver.abi.pointers import Address, checked, get_struct, get_uint, put_pointer, put_struct, put_uint
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, reads, writes
from sandbox.driver.boards import Board, board_of
from sandbox.driver.compute_instances import (
    ComputeProfile,
    compute_profile,
    compute_profiles,
    create_compute_instance,
    destroy_compute_instance,
    has_larger_twin,
)
from sandbox.driver.state import Machine
from sandbox.driver.status import Refused, Status, given, require


@reads(HANDLE, UINT, UINT, OUT)
def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    machine: Machine, handle: Handle, index: int, engine: int, info: Address
) -> None:
    require(get_uint(info) == pynvml.nvmlComputeInstanceProfileInfo_v2, Status.ARGUMENT_VERSION_MISMATCH)
    answer = get_struct(info, pynvml.c_nvmlComputeInstanceProfileInfo_v2_t)
    answer.name = f"MIG {compute_profile_info(machine, handle, index, engine, answer)}"
    put_struct(info, answer)


def compute_profile_info(machine: Machine, handle: Handle, index: int, engine: int, answer: Any) -> str:
    """Fill in what all versions of the structure have, but the counts of its engines; returns the profile's name."""
    device, instance = gpu_instance(machine, handle)
    require(index < pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT and engine == 0, Status.INVALID_ARGUMENT)
    board = board_of(device.gpu)
    spec = board.by_name(instance["profile"])
    offered = {profile.id: profile for profile in compute_profiles(spec)}
    profile = given(offered.get(index), Status.NOT_SUPPORTED)
    answer.id, answer.sliceCount, answer.instanceCount = profile.id, profile.slices, profile.max_instances
    answer.multiprocessorCount = multiprocessors(board, spec, profile)
    part = "" if answer.multiprocessorCount == board.multiprocessors_of(spec) else f"{profile.slices}c."
    return f"{part}{spec.name}"


@writes(HANDLE, UINT, OUT)
def nvmlGpuInstanceCreateComputeInstance(machine: Machine, handle: Handle, profile_id: int, created: Address) -> None:
    checked(created)
    device, instance = gpu_instance(machine, handle)
    compute = create_compute_instance(machine, device.gpu, instance, profile_id)
    put_pointer(created, compute_handle(device.index, instance, compute))


@writes(HANDLE)
def nvmlComputeInstanceDestroy(machine: Machine, handle: Handle) -> None:
    device, instance, compute = compute_instance(machine, handle)
    destroy_compute_instance(device.gpu, instance, compute)


@reads(HANDLE, UINT, OUT, OUT)
def nvmlGpuInstanceGetComputeInstances(
    machine: Machine, handle: Handle, profile_id: int, array: Address, count: Address
) -> None:
    device, instance = gpu_instance(machine, handle)
    compute_profile(device.gpu, instance, profile_id)
    checked(array)
    found = [compute for compute in instance["compute_instances"] if compute["profile"] == profile_id]
    for position, compute in enumerate(found):
        put_pointer(array, compute_handle(device.index, instance, compute), position)
    put_uint(count, len(found))


@reads(HANDLE, UINT, OUT)
def nvmlGpuInstanceGetComputeInstanceById(machine: Machine, handle: Handle, identifier: int, found: Address) -> None:
    device, instance = gpu_instance(machine, handle)
    for compute in instance["compute_instances"]:
        if compute["id"] == identifier:
            put_pointer(found, compute_handle(device.index, instance, compute))
            return
    raise Refused(Status.NOT_FOUND)


@reads(HANDLE, OUT)
def nvmlComputeInstanceGetInfo_v2(machine: Machine, handle: Handle, info: Address) -> None:
    """Its device is the GPU."""
    device, instance, compute = compute_instance(machine, handle)
    answer = get_struct(info, pynvml.c_nvmlComputeInstanceInfo_t)
    answer.id, answer.profileId = compute["id"], compute["profile"]
    answer.placement.start, answer.placement.size = compute["start"], compute["size"]
    put_struct(info, answer)
    put_pointer(info, device_handle(device.index))  # the first two fields
    put_pointer(info, instance_handle(device.index, instance), 1)


def multiprocessors(board: Board, spec: ProfileSpec, profile: ComputeProfile) -> int:
    """All of the GPU instance's, or those of 1g, or a whole number of TPCs (pairs) for each slice."""
    total = board.multiprocessors_of(spec)
    if has_larger_twin(spec) and profile.id == 0:
        one = board.by_nvml_index(0)
        return board.multiprocessors_of(one) if one is not None else total
    if profile.slices >= spec.compute_slices:
        return total
    return total // spec.compute_slices // 2 * 2 * profile.slices

"""Plain use of pynvml, as any program would write it: nothing here knows of the simulation."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml
import pytest

nvml: Any = pynvml  # the binding has no types


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    uuid: str
    name: str
    gpu_instance: int
    compute_instance: int
    memory_mib: int


def code_of(function: Callable[..., object], *arguments: object) -> int:
    """The error code the call is refused with."""
    with pytest.raises(pynvml.NVMLError) as caught:
        function(*arguments)
    error: Any = caught.value
    return int(error.value)


def gpu(index: int = 0) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(index)


def place(start: int, size: int) -> Any:
    return ctypes.byref(nvml.c_nvmlGpuInstancePlacement_t(start, size))


def profiles(device: Any) -> dict[int, Any]:
    """Profile id -> info, by trying every constant as NVML wants it done."""
    found = {}
    for index in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, index)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue
        found[info.id] = info
    return found


def placements(device: Any, profile_id: int) -> list[tuple[int, int]]:
    count = ctypes.c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, None, ctypes.byref(count))
    array = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, array, ctypes.byref(count))
    return [(entry.start, entry.size) for entry in array[: count.value]]


def gpu_instances(device: Any, profile: Any) -> list[Any]:
    array = (nvml.c_nvmlGpuInstance_t * profile.instanceCount)()
    count = ctypes.c_uint(profile.instanceCount)
    nvml.nvmlDeviceGetGpuInstances(device, profile.id, array, ctypes.byref(count))
    return [array[position] for position in range(count.value)]


def compute_profiles(instance: Any) -> list[Any]:
    found = []
    for index in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            found.append(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, 0))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue
    return found


def compute_instances(instance: Any) -> list[Any]:
    found = []
    for profile in compute_profiles(instance):
        array = (nvml.c_nvmlComputeInstance_t * profile.instanceCount)()
        count = ctypes.c_uint(profile.instanceCount)
        nvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, array, ctypes.byref(count))
        found += [array[position] for position in range(count.value)]
    return found


def create_gpu_instance(device: Any, profile_id: int) -> Any:
    """A GPU instance at the first placement that is free; raises the driver's last refusal."""
    *starts, last = placements(device, profile_id)
    for start, size in starts:
        try:
            return nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile_id, place(start, size))
        except nvml.NVMLError_InsufficientResources:
            continue
    return nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile_id, place(*last))


def create(device: Any, profile_id: int, placement: tuple[int, int] | None = None) -> MigDevice:
    """A GPU instance with a compute instance that fills it."""
    if placement is None:
        instance = create_gpu_instance(device, profile_id)
    else:
        instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile_id, place(*placement))
    slices = profiles(device)[profile_id].sliceCount
    full = next(profile for profile in compute_profiles(instance) if profile.sliceCount == slices)
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, full.id)
    ids = (nvml.nvmlGpuInstanceGetInfo(instance).id, nvml.nvmlComputeInstanceGetInfo(compute).id)
    return next(mig for mig in mig_devices(device) if (mig.gpu_instance, mig.compute_instance) == ids)


def mig_handle(uuid: str) -> Any:
    """The handle of the MIG device with this UUID, on any GPU."""
    for index in range(nvml.nvmlDeviceGetCount()):
        for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu(index))):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(index), position)
            except nvml.NVMLError_NotFound:
                continue
            if nvml.nvmlDeviceGetUUID(handle) == uuid:
                return handle
    raise LookupError(uuid)


def describe(mig: Any) -> MigDevice:
    return MigDevice(
        uuid=nvml.nvmlDeviceGetUUID(mig),
        name=nvml.nvmlDeviceGetName(mig),
        gpu_instance=nvml.nvmlDeviceGetGpuInstanceId(mig),
        compute_instance=nvml.nvmlDeviceGetComputeInstanceId(mig),
        memory_mib=nvml.nvmlDeviceGetMemoryInfo(mig).total >> 20,
    )


def mig_devices(device: Any) -> list[MigDevice]:
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            found.append(describe(nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)))
        except nvml.NVMLError_NotFound:
            continue
    return found


def destroy_all(device: Any) -> None:
    for profile in profiles(device).values():
        for instance in gpu_instances(device, profile):
            for compute in compute_instances(instance):
                nvml.nvmlComputeInstanceDestroy(compute)
            nvml.nvmlGpuInstanceDestroy(instance)

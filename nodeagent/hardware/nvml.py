"""The NVIDIA driver through NVML: the one module that imports `pynvml`.

Calls and ctypes in, the values of `driver` out; every NVMLError becomes one of the errors of `driver`. Handles are
never kept: they are unhashable, never equal, and go stale with their instance. Not safe for several threads, and calls
block: `driver_thread.ThreadedDriver` gives it a thread of its own. Decides nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pynvml

from nodeagent.hardware.driver import (
    ComputeInstance,
    DriverError,
    DriverGoneError,
    DriverTimeoutError,
    GpuInstance,
    GpuLostError,
    GpuProcess,
    Health,
    InUseError,
    MigMode,
    NotPermittedError,
    ObservedGpu,
    RefusedError,
)
from partitioning.layouts import Instance
from partitioning.models import ProfileSpec, model_from_report

NVML: Any = pynvml
"""The binding has no types."""

MIB = 1 << 20
MOST_INSTANCES = 16
"""Room for every answer: instance counts in profile infos were seen to be wrong (A30), and short arrays overflow."""

_CODES: dict[type[DriverError], tuple[str, ...]] = {
    DriverGoneError: ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH"),
    DriverTimeoutError: ("TIMEOUT",),
    GpuLostError: ("GPU_IS_LOST", "RESET_REQUIRED"),
    InUseError: ("IN_USE",),
    RefusedError: ("INVALID_ARGUMENT", "NOT_SUPPORTED", "NOT_FOUND", "INSUFFICIENT_RESOURCES"),
    NotPermittedError: ("NO_PERMISSION",),
}
ERRORS = {getattr(NVML, f"NVML_ERROR_{code}"): kind for kind, codes in _CODES.items() for code in codes}


@contextmanager
def _attempt(what: str) -> Iterator[None]:
    """Turn an NVMLError into ours, with what was attempted."""
    try:
        yield
    except NVML.NVMLError as error:
        # By code, never by `in` or a set: these exceptions define __eq__ without __hash__.
        raise ERRORS.get(error.value, DriverError)(what, str(error)) from error


class NvmlDriver:
    """The GPUs of this machine."""

    def __init__(self) -> None:
        self._initialised = False
        self._uuids: dict[int, str] = {}
        self._profiles: dict[str, tuple[ProfileSpec, ...]] = {}
        self._compute_profiles: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}

    def version(self) -> str:
        with _attempt("asking for the driver's version"):
            self._initialise()
            return str(NVML.nvmlSystemGetDriverVersion())

    def observe(self) -> tuple[ObservedGpu, ...]:
        try:
            with _attempt("counting the GPUs"):
                self._initialise()
                count = NVML.nvmlDeviceGetCount()
        except DriverGoneError:
            self._initialised = False  # an upgraded driver is met by a fresh start of the library
            raise
        return tuple(self._observed(index) for index in range(count))

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:
        with _attempt(f"listing the processes on GPU {gpu.index}"):
            handle = self._handle(gpu.uuid)
            found: set[GpuProcess] = set()
            if not gpu.mig_enabled:
                mps = _known(partial(NVML.nvmlDeviceGetMPSComputeRunningProcesses, handle)) or ()
                clients = {entry.pid for entry in mps}
                listed = NVML.nvmlDeviceGetComputeRunningProcesses(handle)
                pids = clients | {entry.pid for entry in listed}
                found.update(GpuProcess(pid=pid, mps_client=pid in clients) for pid in pids)
            # On a GPU with MIG the parent's list needs a privilege and need not tell the instance: ask each device.
            for instance in gpu.instances:
                for device in _mig_devices(NVML.nvmlDeviceGetGpuInstanceById(handle, instance.id), instance):
                    listed = NVML.nvmlDeviceGetComputeRunningProcesses(device)
                    found.update(GpuProcess(pid=entry.pid, instance=instance.id) for entry in listed)
        return tuple(sorted(found, key=lambda process: (process.pid, process.instance or 0)))

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        with _attempt(f"creating {placed}"):
            handle = self._handle(gpu_uuid)
            spec = next((spec for spec in self._profiles_of(gpu_uuid, handle) if spec.name == placed.profile), None)
            if spec is None:
                raise RefusedError(f"creating {placed}", "the driver knows no such profile on this GPU")
            place = NVML.c_nvmlGpuInstancePlacement_t(placed.start, placed.size)
            # byref is vital: the struct itself would go by value in a register and crash the process.
            made = NVML.nvmlDeviceCreateGpuInstanceWithPlacement(handle, spec.profile_id, ctypes.byref(place))
            return int(NVML.nvmlGpuInstanceGetInfo(made).id)

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        what = f"creating the compute instance of GPU instance {gpu_instance}"
        with _attempt(what):
            handle = self._handle(gpu_uuid)
            instance = NVML.nvmlDeviceGetGpuInstanceById(handle, gpu_instance)
            profile_id = NVML.nvmlGpuInstanceGetInfo(instance).profileId
            spec = next(spec for spec in self._profiles_of(gpu_uuid, handle) if spec.profile_id == profile_id)
            # Found by size, not by name: the only profile of a 1g.20gb instance is 1_SLICE_REV1, number 7.
            profiles = self._compute_profiles_of(gpu_uuid, spec, instance)
            full = [identity for identity, slices in profiles if slices == spec.compute_slices]
            if not full:
                raise RefusedError(what, "the driver offers no compute instance of its full size")
            NVML.nvmlGpuInstanceCreateComputeInstance(instance, full[0])

    def destroy_compute_instance(self, gpu_uuid: str, gpu_instance: int, compute_instance: int) -> None:
        with _attempt(f"destroying compute instance {compute_instance} of GPU instance {gpu_instance}"):
            instance = NVML.nvmlDeviceGetGpuInstanceById(self._handle(gpu_uuid), gpu_instance)
            compute = NVML.nvmlGpuInstanceGetComputeInstanceById(instance, compute_instance)
            NVML.nvmlComputeInstanceDestroy(compute)

    def destroy_gpu_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        with _attempt(f"destroying GPU instance {gpu_instance}"):
            NVML.nvmlGpuInstanceDestroy(NVML.nvmlDeviceGetGpuInstanceById(self._handle(gpu_uuid), gpu_instance))

    def _initialise(self) -> None:
        if not self._initialised:
            NVML.nvmlInit()
            self._initialised = True

    def _handle(self, gpu_uuid: str) -> Any:
        self._initialise()
        # By index first: a look-up by UUID was seen to take ten seconds on a busy machine.
        index = next((index for index, uuid in self._uuids.items() if uuid == gpu_uuid), None)
        if index is not None:
            handle = NVML.nvmlDeviceGetHandleByIndex(index)
            if NVML.nvmlDeviceGetUUID(handle) == gpu_uuid:
                return handle
        return NVML.nvmlDeviceGetHandleByUUID(gpu_uuid)

    def _observed(self, index: int) -> ObservedGpu:
        try:
            with _attempt(f"reading GPU {index}"):
                return self._read(index)
        except DriverError as error:
            lost = isinstance(error, GpuLostError)
            return ObservedGpu(
                index=index,
                uuid=self._uuids.get(index, ""),
                health=Health.UNHEALTHY if lost else Health.UNKNOWN,
                health_message=str(error),
                problem=str(error),
            )

    def _read(self, index: int) -> ObservedGpu:
        handle = NVML.nvmlDeviceGetHandleByIndex(index)
        uuid = self._uuids[index] = str(NVML.nvmlDeviceGetUUID(handle))
        name = str(NVML.nvmlDeviceGetName(handle))
        mode, pending = _mig_modes(handle)
        profiles = self._profiles_of(uuid, handle) if mode is not MigMode.NOT_SUPPORTED else ()
        major, minor = NVML.nvmlDeviceGetCudaComputeCapability(handle)
        memory_mib = int(NVML.nvmlDeviceGetMemoryInfo(handle).total) // MIB
        health, message = _health(handle)
        return ObservedGpu(
            index=index,
            uuid=uuid,
            name=name,
            model=model_from_report(name, memory_mib, profiles, (major, minor)),
            mig_mode=mode,
            mig_mode_pending=pending,
            instances=self._instances(uuid, handle, profiles) if mode is MigMode.ENABLED else (),
            health=health,
            health_message=message,
        )

    def _profiles_of(self, uuid: str, handle: Any) -> tuple[ProfileSpec, ...]:
        # Fixed per card once it was told; drivers up to 535 tell nothing while the MIG mode is off.
        if not self._profiles.get(uuid):
            indexes = range(NVML.NVML_GPU_INSTANCE_PROFILE_COUNT)
            infos = [(n, _known(partial(NVML.nvmlDeviceGetGpuInstanceProfileInfo, handle, n))) for n in indexes]
            self._profiles[uuid] = tuple(_profile(handle, n, info) for n, info in infos if info is not None)
        return self._profiles[uuid]

    def _compute_profiles_of(self, uuid: str, spec: ProfileSpec, instance: Any) -> tuple[tuple[int, int], ...]:
        """Id and slices of what fits in an instance of this profile: fixed, and eight questions each time."""
        key = (uuid, spec.name)
        if key not in self._compute_profiles:
            indexes = range(NVML.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
            ask = partial(NVML.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance)
            infos = [info for n in indexes if (info := _known(partial(ask, n, 0))) is not None]
            self._compute_profiles[key] = tuple((int(info.id), int(info.sliceCount)) for info in infos)
        return self._compute_profiles[key]

    def _instances(self, uuid: str, handle: Any, profiles: tuple[ProfileSpec, ...]) -> tuple[GpuInstance, ...]:
        found = []
        for spec in profiles:
            listed = _listed(NVML.c_nvmlGpuInstance_t, partial(NVML.nvmlDeviceGetGpuInstances, handle, spec.profile_id))
            for instance in listed:
                info = NVML.nvmlGpuInstanceGetInfo(instance)
                place = Instance(start=info.placement.start, size=info.placement.size, profile=spec.name)
                found.append(
                    GpuInstance(
                        id=info.id,
                        placed=place,
                        compute_slices=spec.compute_slices,
                        compute=_compute_instances(instance, self._compute_profiles_of(uuid, spec, instance)),
                    )
                )
        return tuple(sorted(found, key=lambda instance: instance.placed))


def _known(ask: Callable[[], Any]) -> Any | None:
    """None for what this GPU lacks: both codes mean so, depending on driver and enum."""
    try:
        return ask()
    except (NVML.NVMLError_NotSupported, NVML.NVMLError_InvalidArgument):
        return None


def _listed(kind: Any, call: Callable[[Any, Any], Any]) -> list[Any]:
    """The raw list calls want the caller's array; null is refused."""
    array, count = (kind * MOST_INSTANCES)(), ctypes.c_uint(MOST_INSTANCES)
    call(array, ctypes.byref(count))
    return [array[n] for n in range(count.value)]


def _profile(handle: Any, nvml_index: int, info: Any) -> ProfileSpec:
    count = ctypes.c_uint(0)
    NVML.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, None, ctypes.byref(count))
    places = (NVML.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
    NVML.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, places, ctypes.byref(count))
    return ProfileSpec(
        name=str(info.name).removeprefix("MIG "),
        profile_id=int(info.id),
        nvml_index=nvml_index,
        compute_slices=int(info.sliceCount),
        size=int(places[0].size),
        memory_mib=int(info.memorySizeMB),
        sm_count=int(info.multiprocessorCount),
        max_instances=int(info.instanceCount),
        starts=tuple(sorted(int(places[n].start) for n in range(count.value))),
    )


def _compute_instances(instance: Any, profiles: tuple[tuple[int, int], ...]) -> tuple[ComputeInstance, ...]:
    found = []
    for profile_id, slices in profiles:
        call = partial(NVML.nvmlGpuInstanceGetComputeInstances, instance, profile_id)
        for compute in _listed(NVML.c_nvmlComputeInstance_t, call):
            info = NVML.nvmlComputeInstanceGetInfo(compute)
            # `device` is the MIG device's own handle, so its UUID needs no walk over MIG indexes.
            uuid = str(NVML.nvmlDeviceGetUUID(info.device))
            found.append(ComputeInstance(id=int(info.id), slices=slices, uuid=uuid))
    return tuple(sorted(found, key=lambda compute: compute.id))


def _mig_devices(instance: Any, observed: GpuInstance) -> Iterator[Any]:
    for compute in observed.compute:
        yield NVML.nvmlComputeInstanceGetInfo(NVML.nvmlGpuInstanceGetComputeInstanceById(instance, compute.id)).device


def _mig_modes(handle: Any) -> tuple[MigMode, MigMode]:
    try:
        current, pending = NVML.nvmlDeviceGetMigMode(handle)
    except NVML.NVMLError_NotSupported:
        return MigMode.NOT_SUPPORTED, MigMode.NOT_SUPPORTED
    modes = (MigMode.DISABLED, MigMode.ENABLED)
    return modes[bool(current)], modes[bool(pending)]


def _health(handle: Any) -> tuple[Health, str]:
    rows = _known(partial(NVML.nvmlDeviceGetRemappedRows, handle))
    if rows is None:
        return Health.OK, ""
    _, _, pending, failed = rows
    if failed:
        return Health.UNHEALTHY, "remapping of broken memory rows failed: the card must be replaced"
    # A pending remap works until the next reset: worth a word, no reason to stop.
    return Health.OK, "memory rows wait to be remapped: reset the GPU when it is idle" if pending else ""

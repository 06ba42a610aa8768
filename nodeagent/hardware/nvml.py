"""Implements `driver.GpuDriver` on NVML.

Takes and returns the values of `driver`; every NVMLError becomes one of its errors. Handles are
never kept: they are unhashable, never equal, and go stale with their instance. Calls block, some for a minute:
`driver_thread.ThreadedDriver` gives each GPU a thread and each call a deadline. An answer that not every driver has
costs only what needs it: the driver's version, memory, compute capability, row remapping, minor, compute mode, the
lists of processes, and the MIG profiles while the MIG mode is off. Without any other answer the GPU cannot be read.
Decides nothing.
"""

import ctypes
import re
import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from nodeagent.hardware.driver import (
    ComputeInstance,
    DriverError,
    DriverGoneError,
    GpuDriver,
    GpuInstance,
    GpuLostError,
    GpuProcess,
    Health,
    MigMode,
    ObservedGpu,
    RefusedError,
    with_driver_closed,
)
from nodeagent.hardware.nvml_calls import MOST, NVML, attempt, known, of_form, optional, processes
from nodeagent.hardware.nvml_mig import Ids, MigReader, mig_devices
from partitioning.layouts import Instance
from partitioning.models import model_from_report

MIB = 1 << 20
GPU_UUID = re.compile("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Devices: TypeAlias = Sequence[tuple[int | None, Any]]
"""Handles of MIG devices with their GPU instance, or that of a GPU as a whole."""
GRAPHICS = "+gfx"
"""In the names of the profiles that can run graphics."""
UNLISTED_REMEDY = (
    "nothing shows that this GPU is free, so it is neither changed nor first advertised; install a driver under which "
    "nvidia-smi lists processes, or disable the node for gpuplan"
)
RESET = with_driver_closed("nvidia-smi --gpu-reset -i INDEX")
BEYOND = (
    f"the driver counts more GPUs than the {MOST} of a node that gpuplan serves: this one and those after it are "
    "neither changed nor advertised; take them out of the node, or ask gpuplan's maintainers for more"
)
LOST_REMEDY = f"{RESET}, or reboot; if it happens again, replace the card"


class NvmlDriver(GpuDriver):
    """The GPUs of this machine. Calls for different GPUs may come from different threads, as NVML allows."""

    def __init__(self) -> None:
        self._initialised = False
        self._lock = threading.Lock()
        self._opened = 0
        """How often NVML was: it lets the driver go when it was closed as often."""
        self._uuids: dict[int, str] = {}
        self._mig = MigReader()

    def version(self) -> str:
        try:
            with attempt("reading the driver's version"):
                self._initialise()
                return str(NVML.nvmlSystemGetDriverVersion() or "")
        except DriverGoneError:
            raise
        except DriverError:
            return ""  # no GPU's fault; a start of the library that fails is reported by the count

    def count(self) -> int:
        try:
            with attempt("counting the GPUs"):
                self._initialise()
                # An absurd count ends no pass: indexes without a GPU behind them are GPUs that cannot be read.
                return min(int(NVML.nvmlDeviceGetCount()), MOST + 1)
        except DriverGoneError:
            self._initialised = False  # a driver that is loaded later is found by a new start of the library
            raise

    def observe_gpu(self, index: int) -> ObservedGpu:
        try:
            with attempt(f"reading GPU {index}"):
                self._initialise()
                found = self._read(index)
                return found if index < MOST else replace(found, instances=(), problem=BEYOND)
        except DriverGoneError:
            self._initialised = False
            raise
        except DriverError as error:
            lost = isinstance(error, GpuLostError)
            problem = f"{error.answer}: {LOST_REMEDY}" if lost else str(error)
            return ObservedGpu(
                index=index,
                uuid=self._uuids.get(index, ""),
                health=Health.UNHEALTHY if lost else Health.UNKNOWN,
                health_message=problem,
                problem=problem,
            )

    def still(self, gpu: ObservedGpu) -> ObservedGpu:
        try:
            with attempt(f"reading GPU {gpu.index}"):
                NVML.nvmlDeviceGetHandleByIndex(gpu.index)
        except DriverError:
            return self.observe_gpu(gpu.index)
        return gpu

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:
        with attempt(f"listing the processes on GPU {gpu.index}"):
            handle = self._handle_at(gpu.index, gpu.uuid)
            # On a GPU with MIG the parent's list needs a privilege and need not name the instance: read each device.
            requested = {(instance.id, compute.id) for instance in gpu.instances for compute in instance.compute}
            devices = _devices(mig_devices(handle, requested)) if gpu.mig_enabled else [(None, handle)]
            return _processes(devices, graphics=[instance for instance, _ in devices])

    def release(self) -> None:
        with self._lock, attempt("closing the driver"):
            self._initialised = False
            while self._opened:
                self._opened -= 1
                NVML.nvmlShutdown()

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        with attempt(f"creating {placed}"):
            handle = self._handle(gpu_uuid)
            profiles = self._mig.profiles(gpu_uuid, handle, enabled=True)
            spec = next((spec for spec in profiles if spec.name == placed.profile), None)
            if spec is None:
                raise RefusedError(f"creating {placed}", "the driver knows no such profile on this GPU")
            place = NVML.c_nvmlGpuInstancePlacement_t(placed.start, placed.size)
            # byref is vital: the struct itself would go by value in a register and crash the process.
            made = NVML.nvmlDeviceCreateGpuInstanceWithPlacement(handle, spec.profile_id, ctypes.byref(place))
            return int(NVML.nvmlGpuInstanceGetInfo(made).id)

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        what = f"creating the compute instance of GPU instance {gpu_instance}"
        with attempt(what):
            handle = self._handle(gpu_uuid)
            instance = NVML.nvmlDeviceGetGpuInstanceById(handle, gpu_instance)
            profile_id = NVML.nvmlGpuInstanceGetInfo(instance).profileId
            profiles = self._mig.profiles(gpu_uuid, handle, enabled=True)
            spec = next((spec for spec in profiles if spec.profile_id == profile_id), None)
            # Found by size, not by name: the full profile of a 1g.20gb instance is 1_SLICE_REV1, number 7.
            full = self._mig.full_compute_profile(gpu_uuid, spec, instance) if spec is not None else None
            if full is None:
                raise RefusedError(what, "the driver has no compute instance profile of its full size")
            NVML.nvmlGpuInstanceCreateComputeInstance(instance, full.id)

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        with attempt(f"destroying the compute instance of {instance.placed}"):
            handle = self._mig.compute_instance(gpu_uuid, self._handle(gpu_uuid), instance, compute)
            NVML.nvmlComputeInstanceDestroy(handle)

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        with attempt(f"destroying {instance.placed}"):
            NVML.nvmlGpuInstanceDestroy(self._mig.gpu_instance(gpu_uuid, self._handle(gpu_uuid), instance))

    def set_compute_mode(self, gpu_uuid: str, mode: int) -> None:
        with attempt(f"setting the compute mode of {gpu_uuid}"):
            NVML.nvmlDeviceSetComputeMode(self._handle(gpu_uuid), mode)

    def _initialise(self) -> None:
        # Once, though the GPUs are read at the same time: the driver is let go only when it was closed as often.
        with self._lock:
            if not self._initialised:
                NVML.nvmlInit()
                self._initialised = True
                self._opened += 1

    def _handle(self, gpu_uuid: str) -> Any:
        # Never by UUID: that goes through all GPUs, so one that does not answer would hold up every other one.
        index = next((index for index, uuid in list(self._uuids.items()) if uuid == gpu_uuid), None)
        if index is None:
            raise RefusedError(f"looking for {gpu_uuid}", "no GPU with this UUID was observed")
        return self._handle_at(index, gpu_uuid)

    def _handle_at(self, index: int, gpu_uuid: str) -> Any:
        self._initialise()
        handle = NVML.nvmlDeviceGetHandleByIndex(index)
        if (uuid := str(NVML.nvmlDeviceGetUUID(handle))) != gpu_uuid:
            raise RefusedError(f"looking for {gpu_uuid}", f"GPU {index} is {uuid} now")
        return handle

    def _read(self, index: int) -> ObservedGpu:
        handle = NVML.nvmlDeviceGetHandleByIndex(index)
        uuid = self._uuids[index] = of_form(NVML.nvmlDeviceGetUUID(handle), GPU_UUID, "its UUID")
        name = str(NVML.nvmlDeviceGetName(handle))[: NVML.NVML_DEVICE_NAME_V2_BUFFER_SIZE]
        mode, pending = _mig_modes(handle)
        enabled = mode is MigMode.ENABLED
        profiles = partial(self._mig.profiles, uuid, handle, enabled=enabled)
        offered = () if mode is MigMode.NOT_SUPPORTED else profiles() if enabled else optional(profiles)
        capability = optional(partial(NVML.nvmlDeviceGetCudaComputeCapability, handle))
        memory_mib = optional(lambda: int(NVML.nvmlDeviceGetMemoryInfo(handle).total) // MIB)
        health, message = _health(handle)
        instances, devices = self._mig.instances(uuid, handle) if enabled else ((), {})
        graphics = {None, *(instance.id for instance in instances if GRAPHICS in instance.placed.profile)}
        return ObservedGpu(
            index=index,
            uuid=uuid,
            name=name,
            model=model_from_report(name, memory_mib or 0, offered or (), capability and tuple(capability)),
            mig_mode=mode,
            mig_mode_pending=pending,
            instances=instances,
            health=health,
            health_message=message,
            minor=optional(lambda: int(NVML.nvmlDeviceGetMinorNumber(handle))),
            compute_mode=None if enabled else optional(lambda: int(NVML.nvmlDeviceGetComputeMode(handle))),
            processes=_processes_or_why(index, _devices(devices) if enabled else [(None, handle)], graphics),
        )


def _devices(found: Mapping[Ids, Any]) -> Devices:
    return [(instance, device) for (instance, _), device in found.items()]


def _processes_or_why(index: int, devices: Devices, graphics: Container[int | None]) -> tuple[GpuProcess, ...] | str:
    try:
        with attempt(f"listing the processes on GPU {index}"):
            return _processes(devices, graphics)
    except RefusedError as error:
        return f"{error}: {UNLISTED_REMEDY}"
    except (DriverGoneError, GpuLostError):
        raise
    except DriverError as error:
        return str(error)


def _processes(devices: Devices, graphics: Container[int | None]) -> tuple[GpuProcess, ...]:
    """On a whole GPU or its MIG devices. `graphics` are the instances that may have processes of that kind too."""
    found: set[GpuProcess] = set()
    for instance, device in devices:
        pids = processes(NVML.nvmlDeviceGetComputeRunningProcesses, device)
        if instance in graphics:
            pids |= known(partial(processes, NVML.nvmlDeviceGetGraphicsRunningProcesses, device)) or set()
        of_mps = partial(processes, NVML.nvmlDeviceGetMPSComputeRunningProcesses, device)
        clients = (known(of_mps) if instance is None else None) or set()
        found.update(GpuProcess(pid=pid, instance=instance, mps_client=pid in clients) for pid in pids | clients)
    return tuple(sorted(found, key=lambda process: (process.pid, process.instance or 0)))


def _mig_modes(handle: Any) -> tuple[MigMode, MigMode]:
    try:
        current, pending = NVML.nvmlDeviceGetMigMode(handle)
    except NVML.NVMLError_NotSupported:
        if optional(partial(NVML.nvmlDeviceGetMaxMigDeviceCount, handle)):
            raise  # a card does not lose its MIG: believed, this would take its instances off the list
        return MigMode.NOT_SUPPORTED, MigMode.NOT_SUPPORTED
    modes = (MigMode.DISABLED, MigMode.ENABLED)
    return modes[bool(current)], modes[bool(pending)]


def _health(handle: Any) -> tuple[Health, str]:
    rows = optional(partial(NVML.nvmlDeviceGetRemappedRows, handle))
    if rows is None:
        return Health.OK, ""
    _, _, pending, failed = rows
    if failed:
        return Health.UNHEALTHY, "remapping of broken memory rows failed: the card must be replaced"
    # A pending remap works until the next reset: worth reporting, no reason to stop.
    return Health.OK, f"memory rows wait to be remapped: {RESET}" if pending else ""

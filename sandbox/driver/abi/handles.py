"""Encodes handles of devices, MIG devices and instances, and resolves them.

A handle is a number that only looks like a pointer: kind, GPU, instance ids and the instance's generation. It is
never dereferenced, means the same in every process, and is stale (invalid argument) once its instance is destroyed.
"""

from dataclasses import dataclass
from enum import IntEnum

from sandbox.driver.state import ComputeInstanceState, GpuInstanceState, GpuState, Machine
from sandbox.driver.status import Refused, Status, given, require

GENERATION_MASK = 0xFFFFFFF
Handle = int | None


class Kind(IntEnum):
    DEVICE = 1
    GPU_INSTANCE = 2
    COMPUTE_INSTANCE = 3
    MIG_DEVICE = 4


@dataclass(frozen=True, slots=True)
class Fields:
    kind: int
    gpu: int
    instance: int
    compute: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, or a MIG device where instance and compute are there."""

    index: int
    gpu: GpuState
    instance: GpuInstanceState | None = None
    compute: ComputeInstanceState | None = None

    def parts(self) -> tuple[GpuInstanceState, ComputeInstanceState] | None:
        if self.instance is None or self.compute is None:
            return None
        return self.instance, self.compute


def encode(kind: Kind, gpu: int = 0, instance: int = 0, compute: int = 0, generation: int = 0) -> int:
    return kind << 52 | gpu << 44 | instance << 36 | compute << 28 | generation & GENERATION_MASK


def decode(handle: Handle) -> Fields:
    number = given(handle, Status.INVALID_ARGUMENT)
    return Fields(number >> 52, number >> 44 & 255, number >> 36 & 255, number >> 28 & 255, number & GENERATION_MASK)


def device_handle(index: int) -> int:
    return encode(Kind.DEVICE, index)


def instance_handle(index: int, instance: GpuInstanceState) -> int:
    return encode(Kind.GPU_INSTANCE, index, instance["id"], 0, instance["generation"])


def compute_handle(index: int, instance: GpuInstanceState, compute: ComputeInstanceState) -> int:
    return encode(Kind.COMPUTE_INSTANCE, index, instance["id"], compute["id"], compute["generation"])


def mig_handle(index: int, instance: GpuInstanceState, compute: ComputeInstanceState) -> int:
    return encode(Kind.MIG_DEVICE, index, instance["id"], compute["id"], compute["generation"])


def any_device(machine: Machine, handle: Handle) -> Device:
    """A GPU or a MIG device."""
    fields = decode(handle)
    gpu = _gpu(machine, fields, Kind.DEVICE, Kind.MIG_DEVICE)
    if fields.kind == Kind.DEVICE:
        return Device(index=fields.gpu, gpu=gpu)
    instance, compute = _compute(gpu, fields)
    return Device(index=fields.gpu, gpu=gpu, instance=instance, compute=compute)


def parent_device(machine: Machine, handle: Handle) -> Device:
    """A GPU; a MIG device's handle is an invalid argument."""
    fields = decode(handle)
    return Device(index=fields.gpu, gpu=_gpu(machine, fields, Kind.DEVICE))


def gpu_instance(machine: Machine, handle: Handle) -> tuple[Device, GpuInstanceState]:
    fields = decode(handle)
    gpu = _gpu(machine, fields, Kind.GPU_INSTANCE)
    for instance in gpu["gpu_instances"]:
        if instance["id"] == fields.instance and instance["generation"] & GENERATION_MASK == fields.generation:
            return Device(index=fields.gpu, gpu=gpu), instance
    raise Refused(Status.INVALID_ARGUMENT)


def compute_instance(machine: Machine, handle: Handle) -> tuple[Device, GpuInstanceState, ComputeInstanceState]:
    fields = decode(handle)
    gpu = _gpu(machine, fields, Kind.COMPUTE_INSTANCE)
    return Device(index=fields.gpu, gpu=gpu), *_compute(gpu, fields)


def _gpu(machine: Machine, fields: Fields, *kinds: Kind) -> GpuState:
    require(fields.kind in kinds and fields.gpu < len(machine["gpus"]), Status.INVALID_ARGUMENT)
    gpu = machine["gpus"][fields.gpu]
    require(not gpu["lost"], Status.GPU_IS_LOST)
    return gpu


def _compute(gpu: GpuState, fields: Fields) -> tuple[GpuInstanceState, ComputeInstanceState]:
    for instance in gpu["gpu_instances"]:
        for compute in instance["compute_instances"]:
            ids = (instance["id"], compute["id"], compute["generation"] & GENERATION_MASK)
            if ids == (fields.instance, fields.compute, fields.generation):
                return instance, compute
    raise Refused(Status.INVALID_ARGUMENT)

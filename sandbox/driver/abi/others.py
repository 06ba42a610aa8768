"""What the product does not call and other programs do: more of a device's identity, and two ways to change it."""

import pynvml

from sandbox.driver.abi.devices import memory
from sandbox.driver.abi.handles import (
    Handle,
    any_device,
    device_handle,
    instance_handle,
    mig_handle,
    parent_device,
)
from sandbox.driver.abi.pointers import Address, checked, get_text, put_int, put_pointer, put_struct, put_uint
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, reads, writes
from sandbox.driver.boards import board_of
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.gpu_instances import chosen_start, create_gpu_instance
from sandbox.driver.mig_mode import RESETLESS, set_mig_mode
from sandbox.driver.state import Machine, busy
from sandbox.driver.status import Refused, Status, given, require

ARCHITECTURES = {(6, 0): 4, (7, 0): 5, (7, 5): 6, (8, 0): 7, (8, 9): 8, (9, 0): 9, (10, 0): 10}
"""NVML_DEVICE_ARCH_* from this compute capability on."""


@reads(OUT, OUT)
def nvmlDeviceGetHandleByUUID(machine: Machine, uuid: Address, handle: Address) -> None:
    wanted = get_text(uuid, pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE)
    for index, gpu in enumerate(machine["gpus"]):
        found = {gpu["uuid"]: device_handle(index)}
        found |= {mig_device_uuid(gpu, *parts): mig_handle(index, *parts) for parts in mig_devices(gpu)}
        if wanted in found:
            require(not gpu["lost"], Status.GPU_IS_LOST)
            put_pointer(handle, found[wanted])
            return
    raise Refused(Status.NOT_FOUND)


@reads(HANDLE, OUT)
def nvmlDeviceGetIndex(machine: Machine, handle: Handle, index: Address) -> None:
    put_uint(index, parent_device(machine, handle).index)


@reads(HANDLE, OUT)
def nvmlDeviceGetArchitecture(machine: Machine, handle: Handle, architecture: Address) -> None:
    capability = board_of(any_device(machine, handle).gpu).model.compute_capability
    put_uint(architecture, max(number for first, number in ARCHITECTURES.items() if first <= capability))


@reads(HANDLE, OUT)
def nvmlDeviceGetBrand(machine: Machine, handle: Handle, brand: Address) -> None:
    tesla = any_device(machine, handle).gpu["name"].startswith("Tesla")
    put_int(brand, pynvml.NVML_BRAND_TESLA if tesla else pynvml.NVML_BRAND_NVIDIA)


@reads(HANDLE, OUT)
def nvmlDeviceGetAddressingMode(machine: Machine, handle: Handle, _mode: Address) -> None:
    """The kernel of this machine shares no memory with its GPUs."""
    any_device(machine, handle)
    raise Refused(Status.NOT_SUPPORTED)


@reads(HANDLE, OUT)
def nvmlDeviceIsMigDeviceHandle(machine: Machine, handle: Handle, answer: Address) -> None:
    put_uint(answer, any_device(machine, handle).instance is not None)


@reads(HANDLE, OUT)
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(machine: Machine, handle: Handle, parent: Address) -> None:
    device = any_device(machine, handle)
    require(device.instance, Status.INVALID_ARGUMENT)
    put_pointer(parent, device_handle(device.index))


@reads(HANDLE, OUT)
def nvmlDeviceGetAttributes_v2(machine: Machine, handle: Handle, attributes: Address) -> None:
    """Without the counts of its engines."""
    device = any_device(machine, handle)
    instance, compute = given(device.parts(), Status.NOT_SUPPORTED)
    board = board_of(device.gpu)
    spec = board.by_name(instance["profile"])
    answer = pynvml.c_nvmlDeviceAttributes()
    answer.multiprocessorCount = board.multiprocessors_of(spec) * compute["size"] // spec.compute_slices
    answer.gpuInstanceSliceCount, answer.computeInstanceSliceCount = spec.compute_slices, compute["size"]
    answer.memorySizeMB = memory(device)[0]
    put_struct(attributes, answer)


@writes(HANDLE, UINT, OUT)
def nvmlDeviceSetMigMode(machine: Machine, handle: Handle, mode: int, activation: Address) -> None:
    """A client that has only the driver open is not counted: the caller has it open itself."""
    gpu = parent_device(machine, handle).gpu
    board = board_of(gpu)
    require(board.mig, Status.NOT_SUPPORTED)
    require(mode in (0, 1), Status.INVALID_ARGUMENT)
    done = set_mig_mode(gpu, on=bool(mode), held=busy(gpu))
    put_int(activation, done)
    require(done is Status.SUCCESS or board.model.compute_capability < RESETLESS, done)


@writes(HANDLE, UINT, OUT)
def nvmlDeviceCreateGpuInstance(machine: Machine, handle: Handle, profile_id: int, created: Address) -> None:
    checked(created)
    device = parent_device(machine, handle)
    require(device.gpu["mig_mode"], Status.NOT_SUPPORTED)
    spec = given(board_of(device.gpu).by_id(profile_id), Status.INVALID_ARGUMENT)
    start = chosen_start(device.gpu, spec)
    instance = create_gpu_instance(machine, device.gpu, profile_id, (start, spec.size))
    put_pointer(created, instance_handle(device.index, instance))

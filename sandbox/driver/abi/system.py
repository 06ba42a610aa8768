"""Initialising the library, what NVML says of driver and machine, and the ways to a device handle."""

from __future__ import annotations

from sandbox.driver.abi.handles import device_handle, mig_handle
from sandbox.driver.abi.pointers import get_text, put_int, put_pointer, put_text, put_uint
from sandbox.driver.abi.registry import OUT, TEXT, UINT, reads, starts
from sandbox.driver.abi.session import Session
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.state import MachineState
from sandbox.driver.status import Refused, Status, require


@starts(UINT)
def nvmlInitWithFlags(session: Session, machine: MachineState, flags: int) -> None:  # noqa: ARG001 - C signature
    require(machine["driver_loaded"], Status.DRIVER_NOT_LOADED)
    session.initialised += 1


@starts()
def nvmlInit_v2(session: Session, machine: MachineState) -> None:
    nvmlInitWithFlags(session, machine, 0)


@reads()
def nvmlShutdown(session: Session, _: MachineState) -> None:
    session.initialised -= 1


@reads(OUT, UINT)
def nvmlSystemGetDriverVersion(_: Session, machine: MachineState, text: int | None, length: int) -> None:
    put_text(text, length, machine["driver_version"])


@reads(OUT, UINT)
def nvmlSystemGetNVMLVersion(_: Session, machine: MachineState, text: int | None, length: int) -> None:
    put_text(text, length, f"{machine['cuda_version'] // 1000}.{machine['driver_version']}")


@reads(OUT)
def nvmlSystemGetCudaDriverVersion(_: Session, machine: MachineState, version: int | None) -> None:
    put_int(version, machine["cuda_version"])


@reads(OUT)
def nvmlSystemGetCudaDriverVersion_v2(_: Session, machine: MachineState, version: int | None) -> None:
    put_int(version, machine["cuda_version"])


@reads(OUT)
def nvmlDeviceGetCount_v2(_: Session, machine: MachineState, count: int | None) -> None:
    put_uint(count, len(machine["gpus"]))


@reads(UINT, OUT)
def nvmlDeviceGetHandleByIndex_v2(_: Session, machine: MachineState, index: int, handle: int | None) -> None:
    require(index < len(machine["gpus"]), Status.INVALID_ARGUMENT)
    require(not machine["gpus"][index]["lost"], Status.GPU_IS_LOST)
    put_pointer(handle, device_handle(index))


@reads(TEXT, OUT)
def nvmlDeviceGetHandleByUUID(_: Session, machine: MachineState, text: int | None, handle: int | None) -> None:
    """Of a GPU or of a MIG device, the latter also in its form before R470."""
    uuid = get_text(text)
    for index, gpu in enumerate(machine["gpus"]):
        if gpu["uuid"] == uuid:
            require(not gpu["lost"], Status.GPU_IS_LOST)
            put_pointer(handle, device_handle(index))
            return
        for instance, compute in mig_devices(gpu):
            old_form = f"MIG-{gpu['uuid']}/{instance['id']}/{compute['id']}"
            if uuid in (mig_device_uuid(gpu, instance, compute), old_form):
                require(not gpu["lost"], Status.GPU_IS_LOST)
                put_pointer(handle, mig_handle(index, instance, compute))
                return
    raise Refused(Status.NOT_FOUND)


@reads(TEXT, OUT)
def nvmlDeviceGetHandleByPciBusId_v2(_: Session, machine: MachineState, text: int | None, handle: int | None) -> None:
    bus_id = get_text(text).upper()
    for index, gpu in enumerate(machine["gpus"]):
        if bus_id in (gpu["bus_id"], gpu["bus_id"][4:]):
            require(not gpu["lost"], Status.GPU_IS_LOST)
            put_pointer(handle, device_handle(index))
            return
    raise Refused(Status.NOT_FOUND)

"""Clients on the GPUs of a simulated machine, as NVML lists them and as the driver refuses for their sake.

The kubelet stand-in calls this when a container starts and ends; tests call it for clients that no list shows. A
process is put on a GPU or on a MIG device by its UUID and stays until it is taken off: real pids are not watched.
"""

from pathlib import Path

from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.state import GpuState, Machine, ProcessState
from sandbox.driver.store import Store


class UnknownDeviceError(LookupError):
    """No GPU and no MIG device of the machine has this UUID now."""


def attach(
    path: Path | str,
    uuid: str,
    pid: int,
    memory_mib: int,
    *,
    mps: bool = False,
    graphics: bool = False,
    hidden: bool = False,
    gpu_instance_alone: bool = False,
) -> None:
    """Put a process on a device, or on a MIG device's GPU instance and not its compute instance.

    Again with the same pid and device: its memory use changes."""
    with Store(path).writing() as machine:
        gpu, gpu_instance, compute_instance = find(machine, uuid)
        compute_instance = None if gpu_instance_alone else compute_instance
        process = ProcessState(
            pid=pid,
            memory_mib=memory_mib,
            gpu_instance=gpu_instance,
            compute_instance=compute_instance,
            mps=mps,
            graphics=graphics,
            hidden=hidden,
        )
        place = (pid, gpu_instance, compute_instance)
        gpu["processes"] = [p for p in gpu["processes"] if _place(p) != place] + [process]
        gpu["processes"].sort(key=lambda p: (p["pid"], p["gpu_instance"] or -1, p["compute_instance"] or -1))


def detach(path: Path | str, pid: int) -> None:
    """Take a process off every device. One that is on none is no error: it may have died with a reboot."""
    with Store(path).writing() as machine:
        for gpu in machine["gpus"]:
            gpu["processes"] = [p for p in gpu["processes"] if p["pid"] != pid]


def find(machine: Machine, uuid: str) -> tuple[GpuState, int | None, int | None]:
    """The GPU a UUID is on, and the GPU and compute instance if it names a MIG device."""
    for gpu in machine["gpus"]:
        if gpu["uuid"] == uuid:
            return gpu, None, None
        for instance, compute in mig_devices(gpu):
            if mig_device_uuid(gpu, instance, compute) == uuid:
                return gpu, instance["id"], compute["id"]
    raise UnknownDeviceError(f"no device {uuid} on this machine")


def _place(process: ProcessState) -> tuple[int, int | None, int | None]:
    return process["pid"], process["gpu_instance"], process["compute_instance"]

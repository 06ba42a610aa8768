"""The driver's part of /proc, as files in a folder next to the machine's state.

Takes a machine, makes the folder show what the driver's own would: majors in `devices`, one file `access` for each live
GPU instance and compute instance, with the minor that this driver gives that place on every machine. Called with the
machine's lock held after each change, so that a program that has seen an instance finds its files.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from sandbox.driver.state import Machine

MAJORS = {"nvidia": 195, "nvidia-modeset": 195, "nvidiactl": 195, "nvidia-uvm": 510, "nvidia-caps": 511}
"""The first three are registered with the kernel, the others get what is free."""
COMPUTE_INSTANCES, GPU_INSTANCES = 8, 15
FIRST_MINOR = 3
"""After those of mig/config and mig/monitor; a GPU instance's is followed by those of its compute instances."""


def proc_of(machine: Path) -> Path:
    """The folder of a machine's state file."""
    return machine.with_name(f"{machine.name}.proc")


def capability_minor(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """As /proc/driver/nvidia-caps/mig-minors lists them."""
    of_instance = 1 + COMPUTE_INSTANCES
    first = FIRST_MINOR + (gpu_minor * GPU_INSTANCES + gpu_instance) * of_instance
    return first if compute_instance is None else first + 1 + compute_instance


def show(machine: Machine, root: Path) -> None:
    """Make the folder match the machine."""
    _write(root / "devices", _devices(loaded=machine["driver_loaded"]))
    capabilities = root / "driver" / "nvidia" / "capabilities"
    if not machine["driver_loaded"]:
        shutil.rmtree(root / "driver", ignore_errors=True)
        return
    capabilities.mkdir(parents=True, exist_ok=True)
    live = {capabilities / where / "access": minor for where, minor in _live(machine)}
    there = {*capabilities.glob("gpu*/mig/gi*/access"), *capabilities.glob("gpu*/mig/gi*/ci*/access")}
    for path in sorted(there - live.keys(), reverse=True):
        shutil.rmtree(path.parent, ignore_errors=True)
    for path, minor in live.items():
        _write(path, f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def show_process(root: Path, pid: int, pod_uid: str = "") -> None:
    """A process of a pod, or of the node itself, as the kernel lists it."""
    cgroup = f"kubepods/besteffort/pod{pod_uid}/{pid}" if pod_uid else "init.scope"
    made = root / f".{pid}.new"
    (made / "fd").mkdir(parents=True)
    (made / "cgroup").write_text(f"0::/{cgroup}\n")
    (made / "stat").write_text(f"{pid} (program) S {'0 ' * 16}1 {'0 ' * 32}\n")
    hide_process(root, pid)
    made.rename(root / str(pid))


def hide_process(root: Path, pid: int) -> None:
    """It has ended."""
    shutil.rmtree(root / str(pid), ignore_errors=True)


def _live(machine: Machine) -> Iterator[tuple[Path, int]]:
    for gpu in machine["gpus"]:
        for instance in gpu["gpu_instances"]:
            where = Path(f"gpu{gpu['minor']}/mig/gi{instance['id']}")
            yield where, capability_minor(gpu["minor"], instance["id"])
            for compute in instance["compute_instances"]:
                yield where / f"ci{compute['id']}", capability_minor(gpu["minor"], instance["id"], compute["id"])


def _devices(*, loaded: bool) -> str:
    rows = [(1, "mem"), (5, "/dev/tty"), *((major, name) for name, major in MAJORS.items() if loaded)]
    characters = "\n".join(f"{major:3d} {name}" for major, name in rows)
    return f"Character devices:\n{characters}\n\nBlock devices:\n  8 sd\n"


def _write(path: Path, text: str) -> None:
    try:
        if path.read_text() == text:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.replace(path)

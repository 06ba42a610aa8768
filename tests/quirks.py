"""Where public sources disagree about NVML, or drivers differ: a program must work with every combination.

Wraps a library of the simulated driver, in this process, so that it answers otherwise. Never changes the machine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from partitioning.models import ProfileSpec
from sandbox.driver import compute_instances
from sandbox.driver.abi import compute
from sandbox.driver.abi.handles import Kind, decode, encode
from sandbox.driver.abi.pointers import put_pointer, put_uint
from sandbox.driver.abi.registry import Export
from sandbox.driver.boards import Board
from sandbox.driver.compute_instances import ComputeProfile, mig_device_slots, mig_devices
from sandbox.driver.store import Store

REDUCED = {4: ComputeProfile(id=8, slices=7, starts=(0,))}
"""A further profile of full size, by the id of the profile that it varies, and listed behind it. It leaves some of the
GPU instance's multiprocessors unused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    names_mig_device: bool = False
    """nvml.h calls the device of a compute instance's info the "parent device"; programs were published that use it as
    the handle of the MIG device."""
    mig_index_gaps: bool = False
    """Indexes of MIG devices begin behind a gap; the header promises "less than the maximum"."""
    compute_variants: bool = False
    """GPU instances of seven slices offer a second full-size compute profile, as those of one with more memory do."""
    vgpu_guest: bool = False
    """The GPUs are vGPUs of a virtual machine."""

    def install(self) -> Callable[[], None]:
        """Returns the function that undoes it."""
        if not self.compute_variants:
            return lambda: None
        plain, multiprocessors = compute_instances.compute_profiles, compute.multiprocessors

        def offered(spec: ProfileSpec) -> tuple[ComputeProfile, ...]:
            more = [REDUCED[profile.id] for profile in plain(spec) if profile.id in REDUCED]
            return tuple(sorted((*plain(spec), *more), key=lambda profile: profile.id))

        def fewer(board: Board, spec: ProfileSpec, profile: ComputeProfile) -> int:
            return multiprocessors(board, spec, profile) - (2 if profile in REDUCED.values() else 0)

        def put(profiles: Any, count: Any) -> None:
            setattr(compute_instances, "compute_profiles", profiles)  # noqa: B010 - a module's function
            setattr(compute, "compute_profiles", profiles)  # noqa: B010
            setattr(compute, "multiprocessors", count)  # noqa: B010

        put(offered, fewer)
        return lambda: put(plain, multiprocessors)

    def asked(self, store: Store, export: Export, arguments: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """What the driver is asked in place of this."""
        handle, *rest = arguments or (None,)
        if not self.mig_index_gaps or export.function.__name__ != "nvmlDeviceGetMigDeviceHandleByIndex":
            return arguments
        gpu = store.read()["gpus"][decode(handle).gpu]
        there, most = len(mig_devices(gpu)), len(mig_device_slots(gpu))
        index = rest[0] or 0
        return (handle, (index + there) % most if index < most else index, *rest[1:])

    def answered(self, export: Export, arguments: tuple[int | None, ...]) -> None:
        """Change the answer."""
        if self.vgpu_guest and export.function.__name__ == "nvmlDeviceGetVirtualizationMode":
            put_uint(arguments[1] or 0, pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)
        if self.names_mig_device and export.function.__name__ == "nvmlComputeInstanceGetInfo_v2":
            own = decode(arguments[0])
            put_pointer(arguments[1], encode(Kind.MIG_DEVICE, own.gpu, own.instance, own.compute, own.generation))

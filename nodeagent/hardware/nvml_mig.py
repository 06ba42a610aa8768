"""Reads through NVML what MIG profiles a GPU has, which instances are on it, and which MIG devices these are.

What a card offers is fixed for as long as its MIG mode stays, and reading it takes dozens of calls, so complete answers
are kept. An empty or incomplete answer is never kept: a handle answers INVALID_ARGUMENT for everything once its
instance is destroyed. Where the driver names no profile at all the read fails, because an empty list would read as
"there are no instances".
Changes nothing. Calls for different GPUs may come from different threads.
"""

import ctypes
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from nodeagent.hardware.driver import ChangedError, ComputeInstance, DriverError, GpuInstance
from nodeagent.hardware.nvml_calls import NVML, ROOM, believed, known, listed, of_form, optional
from partitioning.layouts import Instance
from partitioning.models import ProfileSpec

MIG_UUID = re.compile(r"MIG-(GPU-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/\d+/\d+)?")
PROFILE_NAME = re.compile(r"[\w.+-]{1,32}", re.ASCII)
NO_PROFILE = "MIG mode is on, and the driver names no GPU instance profile"
GUEST = (
    "this is a vGPU of a virtual machine (VGPUGuest), a MIG instance that only its host can change, so no pod gets it: "
    "remove the node's gpuplan labels, or give the virtual machine whole GPUs by passthrough"
)
Ids = tuple[int, int]
"""GPU instance id and compute instance id: together they name a MIG device of a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """One way to make a compute instance in a GPU instance."""

    id: int
    slices: int
    multiprocessors: int


class MigReader:
    """Profiles are kept by GPU UUID, so that threads of different GPUs never write the same entry."""

    def __init__(self) -> None:
        self._profiles: dict[tuple[str, bool], tuple[ProfileSpec, ...]] = {}
        self._compute_profiles: dict[tuple[str, str], tuple[ComputeProfile, ...]] = {}

    def profiles(self, gpu_uuid: str, handle: Any, *, enabled: bool) -> tuple[ProfileSpec, ...]:
        """The GPU instance profiles. Drivers up to 535 name none while the MIG mode is off."""
        self._forget(gpu_uuid, enabled=not enabled)
        if kept := self._profiles.get((gpu_uuid, enabled)):
            return kept
        indexes = range(NVML.NVML_GPU_INSTANCE_PROFILE_COUNT)
        infos = [(n, known(partial(NVML.nvmlDeviceGetGpuInstanceProfileInfo, handle, n))) for n in indexes]
        found = tuple(_profile(handle, n, info) for n, info in infos if info is not None)
        if enabled and not found:
            virtual = optional(partial(NVML.nvmlDeviceGetVirtualizationMode, handle))
            guest = virtual == NVML.NVML_GPU_VIRTUALIZATION_MODE_VGPU
            raise DriverError("reading the MIG profiles", GUEST if guest else NO_PROFILE)
        if found and all(spec.starts for spec in found):
            self._profiles[gpu_uuid, enabled] = found
        return found

    def _forget(self, gpu_uuid: str, *, enabled: bool) -> None:
        """What was read of a GPU in the mode that it is not in now."""
        if self._profiles.pop((gpu_uuid, enabled), None):
            for key in [key for key in list(self._compute_profiles) if key[0] == gpu_uuid]:
                del self._compute_profiles[key]

    def full_compute_profile(self, gpu_uuid: str, spec: ProfileSpec, instance: Any) -> ComputeProfile | None:
        """The one that spans the GPU instance; of several the one with the most multiprocessors."""
        profiles = self._compute_profiles_of(gpu_uuid, spec, instance)
        full = [profile for profile in profiles if profile.slices == spec.compute_slices]
        return max(full, key=lambda profile: (profile.multiprocessors, -profile.id), default=None)

    def instances(self, gpu_uuid: str, handle: Any) -> tuple[tuple[GpuInstance, ...], dict[Ids, Any]]:
        """The GPU instances of a GPU in MIG mode, by placement, and the handles of their MIG devices."""
        present = list(self._present(gpu_uuid, handle))
        compute = {
            (int(info.id), compute_id): profile
            for spec, instance, info in present
            for compute_id, profile in _compute_instances(self._compute_profiles_of(gpu_uuid, spec, instance), instance)
        }
        bare = {int(info.id) for _, _, info in present} - {ids[0] for ids in compute}
        devices = mig_devices(handle, compute, bare)
        # Pods get it, and the kubelet and the container runtime find the device by it: no other kind may pass.
        what = "the UUID of a MIG device"
        uuids = {ids: of_form(NVML.nvmlDeviceGetUUID(device), MIG_UUID, what) for ids, device in devices.items()}
        if len(set(uuids.values())) < len(uuids):
            raise DriverError(f"reading {what}", "two of this GPU have the same")
        found = [
            GpuInstance(
                id=int(info.id),
                placed=Instance(start=info.placement.start, size=info.placement.size, profile=spec.name),
                compute_slices=spec.compute_slices,
                compute=tuple(
                    ComputeInstance(
                        id=ids[1], slices=made.slices, uuid=uuids[ids], multiprocessors=made.multiprocessors
                    )
                    for ids, made in sorted(compute.items(), key=lambda item: item[0])
                    if ids[0] == info.id
                ),
                multiprocessors=full.multiprocessors
                if (full := self.full_compute_profile(gpu_uuid, spec, instance))
                else 0,
            )
            for spec, instance, info in present
        ]
        return tuple(sorted(found, key=lambda instance: instance.placed)), devices

    def _present(self, gpu_uuid: str, handle: Any) -> Iterator[tuple[ProfileSpec, Any, Any]]:
        """Profile, handle and info of each GPU instance. Not asked for is a profile that has no place left."""
        taken: list[Instance] = []
        for spec in self.profiles(gpu_uuid, handle, enabled=True):
            places = [Instance(start=start, size=spec.size, profile=spec.name) for start in spec.starts]
            if places and all(any(place.mask & other.mask for other in taken) for place in places):
                continue
            call = partial(NVML.nvmlDeviceGetGpuInstances, handle, spec.profile_id)
            for instance in listed(NVML.c_nvmlGpuInstance_t, call):
                info = NVML.nvmlGpuInstanceGetInfo(instance)
                believed(info.placement.start + info.placement.size, "memory slices", ROOM)
                taken.append(Instance(start=info.placement.start, size=info.placement.size, profile=spec.name))
                yield spec, instance, info

    def gpu_instance(self, gpu_uuid: str, handle: Any, observed: GpuInstance) -> Any:
        """The handle of an instance that was observed. Raises ChangedError where another one has its id by now.

        The driver gives the id of a destroyed instance to the next one, and other programs can cut the GPU at any time.
        """
        instance = NVML.nvmlDeviceGetGpuInstanceById(handle, observed.id)
        info = NVML.nvmlGpuInstanceGetInfo(instance)
        names = {spec.profile_id: spec.name for spec in self.profiles(gpu_uuid, handle, enabled=True)}
        profile = names.get(int(info.profileId), "an unknown profile")
        now = Instance(start=info.placement.start, size=info.placement.size, profile=profile)
        if now != observed.placed:
            raise ChangedError(
                f"destroying {observed.placed}",
                f"GPU instance {observed.id} is {now} by now, so another program cut this GPU: nothing was destroyed",
            )
        return instance

    def compute_instance(self, gpu_uuid: str, handle: Any, observed: GpuInstance, compute: ComputeInstance) -> Any:
        """The handle of a compute instance that was observed. Raises ChangedError where another one has its ids."""
        instance = self.gpu_instance(gpu_uuid, handle, observed)
        profiles = self.profiles(gpu_uuid, handle, enabled=True)
        spec = next(spec for spec in profiles if spec.name == observed.placed.profile)
        found = NVML.nvmlGpuInstanceGetComputeInstanceById(instance, compute.id)
        profile_id = int(NVML.nvmlComputeInstanceGetInfo(found).profileId)
        profiles_of = self._compute_profiles_of(gpu_uuid, spec, instance)
        sizes = {known.id: (known.slices, known.multiprocessors) for known in profiles_of}
        # Only one that fills its GPU instance is ever destroyed: with the same size it is at the same place.
        if sizes.get(profile_id) != (compute.slices, compute.multiprocessors):
            raise ChangedError(
                f"destroying the compute instance of {observed.placed}",
                f"compute instance {compute.id} has another profile by now, so another program cut this GPU instance: "
                "nothing was destroyed",
            )
        return found

    def _compute_profiles_of(self, gpu_uuid: str, spec: ProfileSpec, instance: Any) -> tuple[ComputeProfile, ...]:
        key = (gpu_uuid, spec.name)
        if kept := self._compute_profiles.get(key):
            return kept
        call = partial(NVML.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance)
        indexes = range(NVML.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        infos = [info for n in indexes if (info := known(partial(call, n, 0))) is not None]
        # A destroyed instance refuses every index, just as a card refuses what it lacks: only the former refuses this.
        NVML.nvmlGpuInstanceGetInfo(instance)
        if not infos:
            raise DriverError(
                f"reading the compute instance profiles of {spec.name}", "the driver names none for this GPU instance"
            )
        found = tuple(
            ComputeProfile(id=int(info.id), slices=int(info.sliceCount), multiprocessors=int(info.multiprocessorCount))
            for info in infos
        )
        if any(profile.slices == spec.compute_slices for profile in found):
            self._compute_profiles[key] = found
        return found


def mig_devices(handle: Any, requested: Collection[Ids], bare: Collection[int] = ()) -> dict[Ids, Any]:
    """The handles of these MIG devices of a GPU, by walking its MIG device indexes. Raises where one is not there, or
    one is in a GPU instance of `bare`, those of which no compute instance is known: a pod may have it.

    The device in nvmlComputeInstanceGetInfo's answer is not used: by nvml.h it is the GPU, whose UUID and processes
    would pass for those of every MIG device on it.
    """
    found: dict[Ids, Any] = {}
    most = believed(NVML.nvmlDeviceGetMaxMigDeviceCount(handle), "MIG devices") if requested or bare else 0
    for index in range(most):
        try:
            device = NVML.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except (NVML.NVMLError_NotFound, NVML.NVMLError_InvalidArgument):
            # No device at this index: go-nvlib and NVIDIA's DRA driver skip both codes.
            continue
        ids = (int(NVML.nvmlDeviceGetGpuInstanceId(device)), int(NVML.nvmlDeviceGetComputeInstanceId(device)))
        if ids[0] in bare:
            what = f"reading the compute instances of GPU instance {ids[0]}"
            raise DriverError(what, "the driver names no compute instance of it, and lists a MIG device in it")
        if ids in requested:
            found[ids] = device
        if len(found) == len(requested) and not bare:
            break
    if absent := sorted(set(requested) - set(found)):
        gpu_instance, compute_instance = absent[0]
        raise DriverError(
            f"looking for the MIG device of compute instance {compute_instance} in GPU instance {gpu_instance}",
            "the driver lists no such MIG device; check that /dev/nvidia-caps of the node is in the agent's container",
        )
    return found


def _compute_instances(profiles: Iterable[ComputeProfile], instance: Any) -> Iterator[tuple[int, ComputeProfile]]:
    """Id and profile of each compute instance in a GPU instance."""
    for profile in profiles:
        call = partial(NVML.nvmlGpuInstanceGetComputeInstances, instance, profile.id)
        for compute in listed(NVML.c_nvmlComputeInstance_t, call):
            yield int(NVML.nvmlComputeInstanceGetInfo(compute).id), profile


def _profile(handle: Any, nvml_index: int, info: Any) -> ProfileSpec:
    count = ctypes.c_uint(0)
    NVML.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, None, ctypes.byref(count))
    places = (NVML.c_nvmlGpuInstancePlacement_t * max(believed(count.value, "placements"), 1))()
    NVML.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, places, ctypes.byref(count))
    found = places[: believed(count.value, "placements")]
    believed(max((place.start + place.size for place in found), default=0), "memory slices", ROOM)
    return ProfileSpec(
        name=of_form(str(info.name).removeprefix("MIG "), PROFILE_NAME, "the name of a MIG profile"),
        profile_id=int(info.id),
        nvml_index=nvml_index,
        compute_slices=int(info.sliceCount),
        size=int(places[0].size),
        memory_mib=int(info.memorySizeMB),
        sm_count=int(info.multiprocessorCount),
        max_instances=int(info.instanceCount),
        starts=tuple(sorted(int(place.start) for place in found if place.size)),
    )

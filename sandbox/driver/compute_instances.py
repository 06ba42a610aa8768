"""Compute instances: the profiles a GPU instance offers, creating and destroying them, and the MIG devices they are.

A GPU instance without a compute instance is no MIG device, runs nothing and still holds its place. Compute instance
ids are the lowest free number in their GPU instance; profile ids equal NVML's profile indexes.
"""

from dataclasses import dataclass

from partitioning.models import ProfileSpec
from sandbox.driver.boards import board_of
from sandbox.driver.gpu_instances import overlap
from sandbox.driver.identity import mig_uuid
from sandbox.driver.state import ComputeInstanceState, GpuInstanceState, GpuState, Machine, busy, next_generation
from sandbox.driver.status import Refused, Status, require

ONE_SLICE_REV1 = 7  # all of a one-slice GPU instance with double memory, where that has more multiprocessors than 1g
SEVEN_SLICE_NVL = 8
ONE_SLICE_REV2 = 9  # NVML's index of that GPU instance profile
MOST_OF_ONE_SLICE = 18  # multiprocessors of 1g on the largest cards that have both
KNOWN_PROFILES = frozenset({0, 1, 2, 3, 4, ONE_SLICE_REV1, SEVEN_SLICE_NVL})


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    id: int
    slices: int
    starts: tuple[int, ...]

    @property
    def max_instances(self) -> int:
        return len(self.starts)


def _profile(profile_id: int, slices: int, *starts: int) -> ComputeProfile:
    return ComputeProfile(id=profile_id, slices=slices, starts=starts)


# Compute slices of the GPU instance -> what it can be divided into.
PROFILES = {
    1: (_profile(0, 1, 0),),
    2: (_profile(0, 1, 0, 1), _profile(1, 2, 0)),
    3: (_profile(0, 1, 0, 1, 2), _profile(1, 2, 0), _profile(2, 3, 0)),
    4: (_profile(0, 1, 0, 1, 2, 3), _profile(1, 2, 0, 2), _profile(3, 4, 0)),
    7: (
        _profile(0, 1, *range(7)),
        _profile(1, 2, 0, 2, 4),
        _profile(2, 3, 0, 4),
        _profile(3, 4, 0),
        _profile(4, 7, 0),
    ),
}


def compute_profiles(spec: ProfileSpec) -> tuple[ComputeProfile, ...]:
    """By id."""
    larger = (_profile(ONE_SLICE_REV1, 1, 0),) if has_larger_twin(spec) else ()
    return PROFILES[spec.compute_slices] + larger


def has_larger_twin(spec: ProfileSpec) -> bool:
    """From Hopper on 1g.20gb and its like have more multiprocessors than 1g, and profile 0 leaves some unused."""
    return spec.nvml_index == ONE_SLICE_REV2 and (spec.sm_count is None or spec.sm_count > MOST_OF_ONE_SLICE)


def full_profile(spec: ProfileSpec) -> ComputeProfile:
    """The one that takes the whole GPU instance."""
    return compute_profiles(spec)[-1]


def compute_profile(gpu: GpuState, instance: GpuInstanceState, profile_id: int) -> ComputeProfile:
    for profile in compute_profiles(board_of(gpu).by_name(instance["profile"])):
        if profile.id == profile_id:
            return profile
    raise Refused(Status.NOT_SUPPORTED if profile_id in KNOWN_PROFILES else Status.INVALID_ARGUMENT)


def free_starts(instance: GpuInstanceState, profile: ComputeProfile) -> list[int]:
    return [
        start
        for start in profile.starts
        if not any(overlap(start, profile.slices, c["start"], c["size"]) for c in instance["compute_instances"])
    ]


def create_compute_instance(
    machine: Machine,
    gpu: GpuState,
    instance: GpuInstanceState,
    profile_id: int,
) -> ComputeInstanceState:
    profile = compute_profile(gpu, instance, profile_id)
    free = free_starts(instance, profile)
    require(free, Status.INSUFFICIENT_RESOURCES)
    start = free[0]
    used_ids = {other["id"] for other in instance["compute_instances"]}
    identifier = next(number for number in range(8) if number not in used_ids)
    created = ComputeInstanceState(
        id=identifier,
        profile=profile.id,
        start=start,
        size=profile.slices,
        engine=instance["start"] + identifier,
        generation=next_generation(machine),
    )
    instance["compute_instances"].append(created)
    instance["compute_instances"].sort(key=lambda other: other["id"])
    return created


def destroy_compute_instance(gpu: GpuState, instance: GpuInstanceState, compute: ComputeInstanceState) -> None:
    require(not busy(gpu, instance["id"], compute["id"]), Status.IN_USE)
    instance["compute_instances"].remove(compute)


def mig_devices(gpu: GpuState) -> list[tuple[GpuInstanceState, ComputeInstanceState]]:
    """In the order of NVML's MIG device index: GPU instance id, then compute instance id."""
    return [(instance, compute) for instance in gpu["gpu_instances"] for compute in instance["compute_instances"]]


def mig_device_slots(gpu: GpuState) -> list[tuple[GpuInstanceState, ComputeInstanceState] | None]:
    """The MIG device at each index that NVML may be asked for; None where there is none."""
    devices = mig_devices(gpu)
    most = max((spec.max_instances for spec in board_of(gpu).model.profiles), default=0)
    return [*devices, *[None] * (most - len(devices))]


def mig_device_uuid(gpu: GpuState, instance: GpuInstanceState, compute: ComputeInstanceState) -> str:
    return mig_uuid(gpu["serial"], instance["id"], compute["engine"])


def mig_device_profile(gpu: GpuState, instance: GpuInstanceState, compute: ComputeInstanceState) -> str:
    """The name NVML prints: `3g.20gb`, or `1c.3g.20gb` where the compute instance is only a part."""
    spec = board_of(gpu).by_name(instance["profile"])
    return spec.name if compute["profile"] == full_profile(spec).id else f"{compute['size']}c.{spec.name}"

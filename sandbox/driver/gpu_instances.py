"""Creates and destroys GPU instances on a GPU's state, in place.

A caller names the placement, or takes the one that the driver chooses. Every refusal is a `Refused` with the
code NVML gives in that case.
"""

from partitioning.models import ProfileSpec
from sandbox.driver.boards import Board, board_of
from sandbox.driver.state import GpuInstanceState, GpuState, Machine, busy, next_generation
from sandbox.driver.status import Status, given, require

FIRST_VARIANT = 7
"""NVML's indexes of GPU instance profiles from here on are variants of those before."""


def instance_id(gpu: GpuState, start: int, size: int) -> int:
    """NVML's id of an instance at a place: 0 the whole card, 1-2 halves, 3-6 quarters, 7-14 eighths."""
    slots = board_of(gpu).model.slots
    if size == slots:
        return 0
    parts = slots // size
    return parts - 1 + start // size


def create_gpu_instance(
    machine: Machine, gpu: GpuState, profile_id: int, placement: tuple[int, int]
) -> GpuInstanceState:
    board = board_of(gpu)
    require(board.mig and gpu["mig_mode"], Status.NOT_SUPPORTED)
    spec = given(board.by_id(profile_id), Status.INVALID_ARGUMENT)
    start, size = placement
    require(size == spec.size and start in spec.starts, Status.INVALID_ARGUMENT)
    # A place that is taken and a place that holds exactly this instance already get the same refusal.
    require(_creatable(gpu, board, spec, start), Status.INSUFFICIENT_RESOURCES)
    # The first instance partitions the card, which the driver refuses while anything runs on the whole of it.
    whole = any(process["gpu_instance"] is None for process in gpu["processes"])
    require(gpu["gpu_instances"] or not whole, Status.IN_USE)
    instance = GpuInstanceState(
        id=instance_id(gpu, start, spec.size),
        profile=spec.name,
        start=start,
        size=spec.size,
        generation=next_generation(machine),
        compute_instances=[],
    )
    gpu["gpu_instances"].append(instance)
    gpu["gpu_instances"].sort(key=lambda other: other["id"])
    return instance


def chosen_start(gpu: GpuState, spec: ProfileSpec) -> int:
    """The driver's own choice: the place that takes the fewest others, then the lowest id of the instance.

    Profiles with media engines, and those of one slice with more memory, do not count as others.
    """
    board = board_of(gpu)
    free = [start for start in spec.starts if _creatable(gpu, board, spec, start)]
    require(free, Status.INSUFFICIENT_RESOURCES)
    others = [
        (start, other.size)
        for other in board.model.profiles
        if other.nvml_index < FIRST_VARIANT
        for start in other.starts
        if _creatable(gpu, board, other, start)
    ]

    def taken(start: int) -> int:
        return sum(overlap(start, spec.size, *other) for other in others)

    return min(free, key=lambda start: (taken(start), instance_id(gpu, start, spec.size)))


def destroy_gpu_instance(gpu: GpuState, instance: GpuInstanceState) -> None:
    require(not instance["compute_instances"] and not busy(gpu, instance["id"]), Status.IN_USE)
    gpu["gpu_instances"].remove(instance)


def _creatable(gpu: GpuState, board: Board, spec: ProfileSpec, start: int) -> bool:
    if sum(other["profile"] == spec.name for other in gpu["gpu_instances"]) >= spec.max_instances:
        return False
    return not any(
        board.model.excludes(spec.name, other["profile"]) or overlap(start, spec.size, other["start"], other["size"])
        for other in gpu["gpu_instances"]
    )


def overlap(start: int, size: int, other_start: int, other_size: int) -> bool:
    return start < other_start + other_size and other_start < start + size

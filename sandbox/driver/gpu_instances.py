"""GPU instances: which can still be made, where the driver puts one, creating and destroying them.

Works on a GPU's state in place; every refusal is a `Refused` with the code NVML gives in that case.

The driver's own choice of place is closed firmware. The rule here is the one its open part documents for compute
slices ("reduce the remaining capacity the least"): of the free placements take the one that leaves the most (profile,
placement) pairs creatable, ties to the lowest instance id. It agrees with every public transcript that the tests hold.
"""

from __future__ import annotations

from partitioning.models import ProfileSpec
from sandbox.driver.boards import Board, board_of
from sandbox.driver.state import GpuInstanceState, GpuState, MachineState, busy, next_generation
from sandbox.driver.status import Status, require


def instance_id(gpu: GpuState, start: int, size: int) -> int:
    """NVML's id of an instance at a place: 0 the whole card, 1-2 halves, 3-6 quarters, 7-14 eighths."""
    slots = board_of(gpu).model.slots
    if size == slots:
        return 0
    parts = slots // size
    return parts - 1 + hardware_start(gpu, start, size) // size


def hardware_start(gpu: GpuState, start: int, size: int) -> int:
    """The place in the chip's own order, which on some cards has the two halves exchanged."""
    slots = board_of(gpu).model.slots
    return (start + slots // 2) % slots if gpu["halves_swapped"] and size < slots else start


def creatable(gpu: GpuState, board: Board) -> list[tuple[ProfileSpec, int]]:
    """Every profile and start that a new instance could have now."""
    places = [(instance["start"], instance["size"], instance["profile"]) for instance in gpu["gpu_instances"]]
    return _creatable(board, places)


def remaining_capacity(gpu: GpuState, board: Board, spec: ProfileSpec) -> int:
    free = sum(1 for other, _ in creatable(gpu, board) if other.name == spec.name)
    return min(free, 1) if board.model.excludes(spec.name, spec.name) else free


def choose_start(gpu: GpuState, board: Board, spec: ProfileSpec) -> int:
    places = [(instance["start"], instance["size"], instance["profile"]) for instance in gpu["gpu_instances"]]
    starts = [start for other, start in _creatable(board, places) if other.name == spec.name]
    require(starts, Status.INSUFFICIENT_RESOURCES)

    def cost(start: int) -> tuple[int, int]:
        left = len(_creatable(board, [*places, (start, spec.size, spec.name)]))
        return -left, instance_id(gpu, start, spec.size)

    return min(starts, key=cost)


def create_gpu_instance(
    machine: MachineState, gpu: GpuState, profile_id: int, placement: tuple[int, int] | None = None
) -> GpuInstanceState:
    board = board_of(gpu)
    require(board.mig and gpu["mig_mode"], Status.NOT_SUPPORTED)
    require(machine["privileged"], Status.NO_PERMISSION)
    spec = board.by_id(profile_id)
    if placement is not None and spec is not None:
        start, size = placement
        require(size == spec.size and start in spec.starts, Status.INVALID_ARGUMENT)
        # A place that is taken and a place that holds exactly this instance already look the same to the caller.
        require((spec, start) in creatable(gpu, board), Status.INSUFFICIENT_RESOURCES)
    else:
        require(spec, Status.INVALID_ARGUMENT)
        assert spec is not None
        start = choose_start(gpu, board, spec)
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


def destroy_gpu_instance(machine: MachineState, gpu: GpuState, instance: GpuInstanceState) -> None:
    require(machine["privileged"], Status.NO_PERMISSION)
    require(not instance["compute_instances"] and not busy(gpu, instance["id"]), Status.IN_USE)
    gpu["gpu_instances"].remove(instance)


def _creatable(board: Board, places: list[tuple[int, int, str]]) -> list[tuple[ProfileSpec, int]]:
    used_names = sorted({name for _, _, name in places})
    return [
        (spec, start)
        for spec in board.model.profiles
        if not any(board.model.excludes(spec.name, name) for name in used_names)
        for start in spec.starts
        if not any(overlap(start, spec.size, other_start, size) for other_start, size, _ in places)
    ]


def overlap(start: int, size: int, other_start: int, other_size: int) -> bool:
    return start < other_start + other_size and other_start < start + size

"""The JSON document that is one simulated machine.

The types mirror the file key by key, so that a person can read it and a test can write it. Nothing here acts: the
rules live in `gpu_instances` and `compute_instances`, locking and saving in `store`.
"""

from typing import TypedDict

FORMAT = 6


class ComputeInstanceState(TypedDict):
    id: int
    profile: int  # NVML's compute instance profile id
    start: int
    size: int
    engine: int  # graphics engine index, one ingredient of the MIG device's UUID
    generation: int


class GpuInstanceState(TypedDict):
    id: int
    profile: str
    start: int
    size: int
    generation: int
    compute_instances: list[ComputeInstanceState]


class ProcessState(TypedDict):
    pid: int
    memory_mib: int
    gpu_instance: int | None
    compute_instance: int | None
    mps: bool
    graphics: bool  # draws, and computes nothing
    hidden: bool  # holds the device without being listed, as DCGM or an exporter does


class GpuState(TypedDict):
    model: str
    name: str
    uuid: str
    serial: int  # the chip's own number: UUIDs derive from it
    minor: int
    memory_mib: int
    mig_mode: bool
    mig_mode_pending: bool
    lost: bool
    compute_mode: int
    remapped_rows: list[int]  # corrected, uncorrected, pending, failed
    gpu_instances: list[GpuInstanceState]
    processes: list[ProcessState]


class Machine(TypedDict):
    format: int
    driver_version: str
    driver_loaded: bool
    generation: int
    gpus: list[GpuState]


def next_generation(machine: Machine) -> int:
    """A number no earlier instance had: handles carry it, so that a handle of a destroyed instance is stale."""
    machine["generation"] += 1
    return machine["generation"]


def busy(gpu: GpuState, gpu_instance: int | None = None, compute_instance: int | None = None) -> bool:
    """Whether any client, listed or hidden, holds the GPU, the GPU instance or the compute instance."""
    return any(
        (gpu_instance is None or process["gpu_instance"] == gpu_instance)
        and (compute_instance is None or process["compute_instance"] == compute_instance)
        for process in gpu["processes"]
    )

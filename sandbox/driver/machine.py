"""Makes simulated machines and reads their state.

Takes a path, the GPUs as (model, options) pairs and a seed, and writes the machine's state file, on which
`python -m sandbox.driver.run` or `install` runs programs. The same arguments make the same machine, UUID for UUID.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from partitioning.models import GpuModel
from sandbox.driver.boards import Board
from sandbox.driver.compute_instances import create_compute_instance, full_profile
from sandbox.driver.gpu_instances import create_gpu_instance
from sandbox.driver.identity import gpu_uuid, serial_of
from sandbox.driver.state import FORMAT, GpuState, Machine
from sandbox.driver.status import Refused
from sandbox.driver.store import Store

DRIVER_VERSION = "580.126.09"


class GpuOptions(TypedDict, total=False):
    name: str  # NVML's product name, where the model has several
    memory_mib: int  # the card's own total, where it is known better than the catalogue has it
    mig_enabled: bool
    instances: Sequence[tuple[str, int]]  # profile and start of each, created with a full compute instance


def create(
    path: Path | str,
    gpus: Iterable[tuple[GpuModel, GpuOptions]],
    seed: str | int,
    *,
    driver_version: str = DRIVER_VERSION,
) -> Store:
    """Write the state file of a new machine. A layout the hardware would refuse raises ValueError."""
    store = Store(path)
    store.create(create_state(gpus, seed, driver_version=driver_version))
    return store


def create_state(
    gpus: Iterable[tuple[GpuModel, GpuOptions]],
    seed: str | int,
    *,
    driver_version: str = DRIVER_VERSION,
) -> Machine:
    machine = Machine(
        format=FORMAT,
        driver_version=driver_version,
        driver_loaded=True,
        generation=0,
        gpus=[],
    )
    for index, (model, options) in enumerate(gpus):
        board = Board(model=model)
        gpu = _gpu(board, options, index, serial_of(seed, index))
        machine["gpus"].append(gpu)
        _cut(machine, gpu, board, options.get("instances", ()))
    return machine


def observe(path: Path | str) -> Machine:
    """The whole state, for tests and for people."""
    return Store(path).read()


def _gpu(board: Board, options: GpuOptions, index: int, serial: int) -> GpuState:
    mig_enabled = options.get("mig_enabled", False)
    if mig_enabled and not board.mig:
        raise ValueError(f"GPU {index}: {board.model.key} has no MIG mode that can be simulated")
    if options.get("instances") and not mig_enabled:
        raise ValueError(f"GPU {index}: instances need mig_enabled")
    memory_mib = options.get("memory_mib") or board.model.memory_mib
    if not memory_mib:
        raise ValueError(f"GPU {index}: the memory of {board.model.key} is not known, give memory_mib")
    return GpuState(
        model=board.model.key,
        name=options.get("name", board.model.names[0]),
        uuid=gpu_uuid(serial),
        serial=serial,
        minor=index,
        memory_mib=memory_mib,
        mig_mode=mig_enabled,
        mig_mode_pending=mig_enabled,
        lost=False,
        compute_mode=0,
        remapped_rows=[0, 0, 0, 0],
        gpu_instances=[],
        processes=[],
    )


def _cut(machine: Machine, gpu: GpuState, board: Board, instances: Iterable[tuple[str, int]]) -> None:
    for profile, start in instances:
        spec = board.by_name(profile)
        try:
            instance = create_gpu_instance(machine, gpu, spec.profile_id, (start, spec.size))
        except Refused as refusal:
            raise ValueError(f"GPU {gpu['minor']}: {profile} at {start}: {refusal}") from refusal
        create_compute_instance(machine, gpu, instance, full_profile(spec).id)

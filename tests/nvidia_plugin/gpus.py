"""The GPUs of a simulated machine as NVIDIA's programs find them, and the device ids that a config makes of them.

Reads the machine's state; sets compute modes in it as nvidia-smi does. Must never be asked about MIG devices: what the
plugin does with the strategies `single` and `mixed` on a GPU in MIG mode is not simulated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.driver.boards import board_of
from sandbox.driver.machine import observe
from sandbox.driver.processes import find
from sandbox.driver.store import Store
from tests.nvidia_plugin.config_file import MPS, BadConfig, Config

DEFAULT, EXCLUSIVE_PROCESS = 0, 3
WHOLE = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory_mib: int
    compute_capability: tuple[int, int]
    mig: bool


def gpus(machine: Path) -> tuple[Gpu, ...]:
    """By index."""
    return tuple(
        Gpu(
            index=index,
            uuid=gpu["uuid"],
            name=gpu["name"],
            memory_mib=gpu["memory_mib"],
            compute_capability=board_of(gpu).model.compute_capability,
            mig=gpu["mig_mode"],
        )
        for index, gpu in enumerate(observe(machine)["gpus"])
    )


def set_compute_mode(machine: Path, uuid: str, mode: int) -> bool:
    """False where nvidia-smi fails: a GPU in MIG mode has only the default."""
    with Store(machine).writing() as state:
        gpu = find(state, uuid)[0]
        if gpu["mig_mode"] and mode != DEFAULT:
            return False
        gpu["compute_mode"] = mode
    return True


def device_ids(config: Config, found: tuple[Gpu, ...]) -> Mapping[str, tuple[str, ...]]:
    """By resource; raises BadConfig where the plugin refuses the combination."""
    if config.mig_strategy not in ("none", "single", "mixed"):
        raise BadConfig(f"unable to validate flags: unknown MIG strategy: {config.mig_strategy}")
    if config.strategy == MPS and config.mig_strategy == "mixed":
        raise BadConfig("unable to validate flags: using --mig-strategy=mixed is not supported with MPS")
    if config.mig_strategy != "none" and any(gpu.mig for gpu in found):
        raise NotImplementedError("a GPU in MIG mode with another strategy than none is not simulated")
    replicas = dict(config.replicas).get(WHOLE)
    if not found:
        return {}
    if replicas is None:
        return {WHOLE: tuple(gpu.uuid for gpu in found)}
    return {config.resource(WHOLE): tuple(f"{gpu.uuid}::{n}" for gpu in found for n in range(replicas))}

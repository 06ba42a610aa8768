"""Does to simulated hardware what happens to real hardware: a lost GPU, broken memory rows, a new driver, a reboot.

Each function is one write of a machine's state file, while agents may run on it.
"""

from collections.abc import Sequence
from pathlib import Path

from sandbox.driver.boards import board_of
from sandbox.driver.breaking import find_again, lose, remap_rows
from sandbox.driver.state import busy
from sandbox.driver.store import Store

HOPPER = (9, 0)
__all__ = ["enable_mig", "find_again", "lose", "reboot", "remap_rows", "replace_driver", "set_driver_loaded"]


def set_driver_loaded(path: Path | str, loaded: bool) -> None:
    with Store(path).writing() as machine:
        machine["driver_loaded"] = loaded


def replace_driver(path: Path | str, version: str) -> None:
    """Another driver version is loaded; processes that have loaded the old library cannot use it."""
    with Store(path).writing() as machine:
        machine["driver_version"] = version


def enable_mig(path: Path | str, index: int = 0) -> None:
    """An administrator switches the MIG mode on, which an idle GPU takes at once."""
    with Store(path).writing() as machine:
        gpu = machine["gpus"][index]
        assert not busy(gpu)
        gpu["mig_mode"] = gpu["mig_mode_pending"] = True


def reboot(path: Path | str, order: Sequence[int] | None = None) -> None:
    """Restart the machine: instances are gone, from Hopper on the MIG mode too. `order` lists the old GPU indexes."""
    with Store(path).writing() as machine:
        machine["driver_loaded"] = True
        for gpu in machine["gpus"]:
            gpu.update({"gpu_instances": [], "processes": [], "lost": False, "compute_mode": 0})
            gpu["remapped_rows"][2] = 0
            gpu["mig_mode_pending"] &= board_of(gpu).model.compute_capability < HOPPER
            gpu["mig_mode"] = gpu["mig_mode_pending"]
        if order is not None:
            machine["gpus"] = [machine["gpus"][index] for index in order]

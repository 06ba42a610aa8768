"""Does to simulated hardware what happens to real hardware: a lost GPU, broken memory rows, a new driver, a reboot.

Each function is one write of a machine's state file, while agents may run on it.
"""

from collections.abc import Sequence
from pathlib import Path

from sandbox.driver.boards import board_of
from sandbox.driver.processes import find
from sandbox.driver.state import busy
from sandbox.driver.store import Store

HOPPER = (9, 0)


def lose(path: Path | str, uuid: str) -> None:
    """The GPU falls off the bus: every call on it says so, until a reboot."""
    with Store(path).writing() as machine:
        find(machine, uuid)[0]["lost"] = True


def find_again(path: Path | str, uuid: str) -> None:
    """It is back on the bus, with its instances, as after a link that was retrained."""
    with Store(path).writing() as machine:
        find(machine, uuid)[0]["lost"] = False


def remap_rows(path: Path | str, uuid: str, *, pending: bool = False, failed: bool = False) -> None:
    """Rows were remapped: pending requires a reset, failed means the card must be replaced."""
    with Store(path).writing() as machine:
        rows = find(machine, uuid)[0]["remapped_rows"]
        rows[1] += 1
        rows[2], rows[3] = int(pending), int(failed)


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

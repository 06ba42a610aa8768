"""Breaks simulated GPUs as real ones break: one falls off the bus, or rows of its memory fail.

Each function is one write of a machine's state file, while agents may run on it.
"""

from pathlib import Path

from sandbox.driver.processes import find
from sandbox.driver.store import Store


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

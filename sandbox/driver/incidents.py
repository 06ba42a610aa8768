"""What befalls hardware: XID errors, a lost GPU, broken memory rows, a reset, a new driver, a reboot.

Tests and demos call these on a machine's state file while agents run on it. Each is one write of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandbox.driver.mode import reboot as reboot_machine
from sandbox.driver.mode import reset as reset_gpu
from sandbox.driver.processes import find
from sandbox.driver.state import EventState, MachineState, next_generation
from sandbox.driver.store import Store

SINGLE_BIT_ECC, DOUBLE_BIT_ECC, XID = 0x1, 0x2, 0x8
# What a GPU is asked to report here. MIG configuration changes (0x100) are left out until hardware was seen to send
# them: an agent that relied on them would be blind on a card that does not.
SUPPORTED_EVENTS = SINGLE_BIT_ECC | DOUBLE_BIT_ECC | XID
KEPT_EVENTS = 64


def raise_xid(path: Path | str, uuid: str, xid: int) -> None:
    """An XID on a GPU, or on the part of it that a MIG device's UUID names."""
    with Store(path).writing() as machine:
        _add_event(machine, uuid, XID, xid)


def raise_double_bit_error(path: Path | str, uuid: str) -> None:
    with Store(path).writing() as machine:
        gpu, _, _ = find(machine, uuid)
        gpu["ecc_uncorrected"] += 1
        _add_event(machine, uuid, DOUBLE_BIT_ECC, 0)


def lose(path: Path | str, uuid: str) -> None:
    """The GPU falls off the bus: every call on it says so, until a reboot."""
    with Store(path).writing() as machine:
        find(machine, uuid)[0]["lost"] = True


def remap_rows(path: Path | str, uuid: str, *, pending: bool = False, failed: bool = False) -> None:
    """Rows were remapped: pending asks for a reset, failed means the card must be replaced."""
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


def reset(path: Path | str, uuid: str) -> None:
    """Raises `Refused` (in use) while a client holds the GPU."""
    with Store(path).writing() as machine:
        reset_gpu(find(machine, uuid)[0])


def reboot(path: Path | str, order: Sequence[int] | None = None) -> None:
    """Restart the machine; `order` lists the old indexes in the order the GPUs now come up in."""
    with Store(path).writing() as machine:
        reboot_machine(machine)
        if order is not None:
            machine["gpus"] = [machine["gpus"][index] for index in order]


def _add_event(machine: MachineState, uuid: str, kind: int, data: int) -> None:
    gpu, gpu_instance, compute_instance = find(machine, uuid)
    event = EventState(
        sequence=next_generation(machine),
        type=kind,
        data=data,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
    )
    gpu["events"] = [*gpu["events"], event][-KEPT_EVENTS:]

"""Sets the MIG mode of a card.

Setting the mode always succeeds as a call; what became of it is the activation status it returns. Ampere changes mode
through a GPU reset and keeps it over reboots, Hopper and later change it at once and lose it with the driver.
Instances never survive either.
"""

from sandbox.driver.boards import board_of
from sandbox.driver.state import GpuState, MachineState, busy
from sandbox.driver.status import Status, require


def set_mig_mode(machine: MachineState, gpu: GpuState, mode: int) -> Status:
    """Make the mode pending and, where nothing prevents it, current. Returns the activation status."""
    board = board_of(gpu)
    require(board.mig, Status.NOT_SUPPORTED)
    require(mode in (0, 1), Status.INVALID_ARGUMENT)
    require(machine["privileged"], Status.NO_PERMISSION)
    gpu["mig_mode_pending"] = bool(mode)
    if gpu["mig_mode_pending"] == gpu["mig_mode"]:
        return Status.SUCCESS
    if busy(gpu) or gpu["gpu_instances"]:
        return Status.IN_USE
    gpu["mig_mode"] = gpu["mig_mode_pending"]
    return Status.SUCCESS

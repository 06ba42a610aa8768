"""Switches the MIG mode of a GPU's state, in place, as its generation allows."""

from sandbox.driver.boards import board_of
from sandbox.driver.state import GpuState
from sandbox.driver.status import Status

RESETLESS = (9, 0)
"""From this compute capability on the MIG mode changes without a reset."""


def set_mig_mode(gpu: GpuState, *, on: bool, held: bool) -> Status:
    """While the GPU is held, or has instances, the mode stays: Ampere leaves the change pending, Hopper refuses it."""
    if held or gpu["gpu_instances"]:
        if board_of(gpu).model.compute_capability < RESETLESS:
            gpu["mig_mode_pending"] = on
        return Status.IN_USE
    gpu["mig_mode"] = gpu["mig_mode_pending"] = on
    return Status.SUCCESS

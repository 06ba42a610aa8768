"""Applies the faults in a machine's state file to single calls: fail with a code, stall, or kill the calling process.

A fault names the C symbol (`nvmlGpuInstanceDestroy`), applies to `times` calls after `skip` others, and may be bound to
one GPU. A parent process or a test writes it while an agent runs.
"""

from enum import StrEnum

from sandbox.driver.state import FaultState, MachineState
from sandbox.driver.store import Store


class Action(StrEnum):
    FAIL = "fail"
    DELAY = "delay"
    DIE_BEFORE = "die_before"
    DIE_AFTER = "die_after"  # the act is done and saved, its caller never hears of it


def take(store: Store, function: str, gpu_index: int | None) -> FaultState | None:
    """The fault that strikes this call, counted down; None for nearly every call."""
    with store.reading() as machine:
        if _find(machine, function, gpu_index) is None:
            return None
    with store.writing() as machine:
        fault = _find(machine, function, gpu_index)
        if fault is None:
            return None
        if fault["skip"] > 0:
            fault["skip"] -= 1
            return None
        if fault["times"] > 0:
            fault["times"] -= 1
        return fault


def _find(machine: MachineState, function: str, gpu_index: int | None) -> FaultState | None:
    for fault in machine["faults"]:
        if fault["function"] != function or fault["times"] == 0:
            continue
        if fault["gpu"] is None:
            return fault
        known = gpu_index is not None and gpu_index < len(machine["gpus"])
        if known and machine["gpus"][gpu_index or 0]["uuid"] == fault["gpu"]:
            return fault
    return None

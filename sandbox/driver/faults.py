"""Faults injected into single calls: fail with a code, stall, or kill the calling process before or after the act.

A fault lies in the machine's state file, so that a parent process or a test can set it while an agent runs. It names
the C symbol (`nvmlGpuInstanceDestroy`), strikes `times` calls after letting `skip` pass, and may be bound to one GPU.
"""

from enum import StrEnum
from pathlib import Path

from sandbox.driver.state import FaultState, MachineState
from sandbox.driver.status import Status
from sandbox.driver.store import Store

ALWAYS = -1


class Action(StrEnum):
    FAIL = "fail"
    DELAY = "delay"
    DIE_BEFORE = "die_before"
    DIE_AFTER = "die_after"  # the act is done and saved, its caller never hears of it


def inject(
    path: Path | str,
    function: str,
    action: Action,
    *,
    status: Status = Status.UNKNOWN,
    seconds: float = 0.0,
    skip: int = 0,
    times: int = 1,
    gpu: str | None = None,
) -> None:
    """Add a fault; the first that matches a call wins. `times=ALWAYS` never wears off."""
    with Store(path).writing() as machine:
        machine["faults"].append(
            FaultState(
                function=function,
                action=action.value,
                status=int(status),
                seconds=seconds,
                skip=skip,
                times=times,
                gpu=gpu,
            )
        )


def clear(path: Path | str) -> None:
    with Store(path).writing() as machine:
        machine["faults"] = []


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

"""Injects faults into the simulated driver: a call fails with a code, stalls, or kills its process.

Writes them into a machine's state file, where `sandbox.driver.faults` finds them.
"""

from pathlib import Path

from sandbox.driver.faults import Action
from sandbox.driver.state import FaultState
from sandbox.driver.status import Status
from sandbox.driver.store import Store

__all__ = ["ALWAYS", "Action", "clear", "inject"]

ALWAYS = -1


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
    """Add a fault; the first that matches a call wins. `times=ALWAYS` never ends."""
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

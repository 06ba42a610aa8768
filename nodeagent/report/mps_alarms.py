"""Finds which alarms of MPS daemons are new: a daemon that had ended, or defaults that a client changed.

Takes what the supervisor reports in each pass; returns how many alarms there are since the last pass, and a sentence
for each GPU with one. What an earlier agent may have reported already, and what a supervisor that has just started
counts, is not new. Reports nothing itself.
"""

from collections.abc import Iterable

from nodeagent.handover.mps_state import MpsState
from nodeagent.hardware.driver import ObservedGpu


class MpsAlarms:
    def __init__(self) -> None:
        self._counted: dict[str, int] | None = None
        """By GPU UUID; None before the first report of a supervisor."""

    def new(self, state: MpsState | None, gpus: Iterable[ObservedGpu]) -> list[tuple[int, str]]:
        """How many, and a sentence, for each GPU with something new."""
        if state is None:
            return []
        before, self._counted = self._counted, {daemon.gpu: daemon.alarms for daemon in state.daemons}
        index = {gpu.uuid: gpu.index for gpu in gpus}
        found = []
        for daemon in state.daemons if before is not None else ():
            count = daemon.alarms - (before or {}).get(daemon.gpu, 0)
            if count > 0 and daemon.gpu in index:
                found.append((count, f"GPU {index[daemon.gpu]}: its MPS control daemon: {daemon.alarm}."))
        return found

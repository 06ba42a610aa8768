"""Which GPUs count as broken, so that their devices are listed as Unhealthy and no further pod gets one.

Takes the observed GPUs, returns the UUIDs of those that have reported a fault (lost, reset required, failed row remap)
for some seconds. A driver that merely does not answer is no fault of a GPU. Never decides when a GPU is well again:
that is read from the GPU itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeagent.ages import Ages
from nodeagent.hardware.driver import Health, ObservedGpu

PATIENCE_SECONDS = 5.0
"""A fault that one pass sees and the next does not must not cost a node its devices."""


class Faults:
    def __init__(self, clock: Callable[[], float], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._ages = Ages(clock)
        self._patience_seconds = patience_seconds
        self.waits = False
        """Some GPU has reported its fault for less than that."""

    def broken(self, gpus: Iterable[ObservedGpu]) -> frozenset[str]:
        """UUIDs, empty for a GPU that does not report its own. Call it once a pass."""
        ages = {gpu.uuid: self._ages.seconds(gpu.uuid) for gpu in gpus if gpu.health is Health.UNHEALTHY}
        self._ages.end_pass()
        found = frozenset(uuid for uuid, seconds in ages.items() if seconds >= self._patience_seconds)
        self.waits = len(found) < len(ages)
        return found

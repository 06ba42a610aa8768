"""Reads the GPUs of the node, and remembers the last ones that could be read for while the driver does not answer.

Takes a driver, returns a `Hardware`: a driver that does not answer as a whole gives the GPUs of before, each with that
problem and without instances, so that none of them is believed to be empty. A GPU in MIG mode takes dozens of calls,
which slow down what runs on it: while nothing is to be done its good reading is used again for as long as the agent
says, if the GPU is still there. Must never do so for a reading on which a change would rest. Changes nothing.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from kube.change_log import ChangeLog
from nodeagent.hardware.driver import DriverClosedError, DriverClosingError, DriverError, GpuDriver, Health, ObservedGpu

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The GPUs at one moment."""

    gpus: tuple[ObservedGpu, ...]
    driver_version: str
    problem: DriverError | None
    """The driver as a whole does not answer."""
    kept: frozenset[str] = frozenset()
    """UUIDs of the GPUs whose reading is an earlier one."""


class HardwareReader:
    def __init__(self, driver: GpuDriver, clock: Callable[[], float]) -> None:
        self._driver, self._clock = driver, clock
        self.gpus: tuple[ObservedGpu, ...] = ()
        """The last ones that could be read."""
        self.closed = False
        """By this agent, and not opened since."""
        self._read_at: dict[str, float] = {}
        self.keeps_from, self.keeps_seconds = 0.0, 0.0
        """From when on, and for how long, a reading may be used again."""
        self._driver_version = ""
        self._change_log = ChangeLog(log)

    def read(self, *, closed_for: str = "", afresh: bool = False) -> Hardware:
        """`closed_for` is why the driver is closed now, and not opened again."""
        self.closed = bool(closed_for)
        if closed_for:
            return self._unread(self._close(closed_for))
        try:
            self._driver_version = self._driver_version or self._driver.version()
            before = () if afresh else tuple(gpu for gpu in self.gpus if self._may_keep(gpu))
            self.gpus = _distinct(self._driver.observe(before))
        except DriverError as error:
            return self._unread(error)
        self._change_log.warn("")
        kept = frozenset(gpu.uuid for gpu in self.gpus if any(gpu is other for other in before))
        self._read_at.update((gpu.uuid, self._clock()) for gpu in self.gpus if gpu.uuid not in kept)
        return Hardware(gpus=self.gpus, driver_version=self._driver_version, problem=None, kept=kept)

    def _may_keep(self, gpu: ObservedGpu) -> bool:
        good = not gpu.problem and gpu.health is Health.OK and not isinstance(gpu.processes, str)
        now, read_at = self._clock(), self._read_at.get(gpu.uuid, float("-inf"))
        return gpu.mig_enabled and good and now >= self.keeps_from and now - read_at < self.keeps_seconds

    def _close(self, why: str) -> DriverClosedError:
        try:
            self._driver.release()
        except DriverError as error:
            return DriverClosingError("closing the driver", f"{why}, and the agent has it open still: {error.answer}")
        why = f"{why}: the agent has closed it until the label changes, and the status says so"
        return DriverClosedError("reading the GPUs", why)

    def _unread(self, error: DriverError) -> Hardware:
        self._change_log.warn(f"driver: {error}")
        self._driver_version = ""  # a different one may come back
        self._read_at.clear()  # and no instance with it
        gpus = tuple(replace(gpu, problem=str(error), instances=()) for gpu in self.gpus)
        return Hardware(gpus=gpus, driver_version="", problem=error)


def _distinct(gpus: Collection[ObservedGpu]) -> tuple[ObservedGpu, ...]:
    """Of several with one UUID, as where a card leaves while they are read, it is not known which has it."""
    times = Counter(gpu.uuid for gpu in gpus if gpu.uuid)
    problem = "another GPU has its UUID"
    return tuple(
        replace(gpu, uuid="", instances=(), problem=problem, health=Health.UNKNOWN) if times[gpu.uuid] > 1 else gpu
        for gpu in gpus
    )

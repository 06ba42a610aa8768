"""Reads the GPUs of the node, and remembers the last ones that could be read for while the driver does not answer.

Takes a driver, returns a `Hardware`: a driver that does not answer as a whole gives the GPUs of before, each with that
problem and without instances, so that none of them is believed to be empty. Changes nothing.
"""

import logging
from dataclasses import dataclass, replace

from kube.change_log import ChangeLog
from nodeagent.hardware.driver import DriverClosedError, DriverClosingError, DriverError, GpuDriver, ObservedGpu

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The GPUs at one moment."""

    gpus: tuple[ObservedGpu, ...]
    driver_version: str
    problem: DriverError | None
    """The driver as a whole does not answer."""


class HardwareReader:
    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        self._gpus: tuple[ObservedGpu, ...] = ()
        self._driver_version = ""
        self._change_log = ChangeLog(log)

    def read(self, *, closed_for: str = "") -> Hardware:
        """`closed_for` is why the driver is closed now, and not opened again."""
        if closed_for:
            return self._unread(self._close(closed_for))
        try:
            self._driver_version = self._driver_version or self._driver.version()
            self._gpus = self._driver.observe()
        except DriverError as error:
            return self._unread(error)
        self._change_log.warn("")
        return Hardware(gpus=self._gpus, driver_version=self._driver_version, problem=None)

    def _close(self, why: str) -> DriverClosedError:
        try:
            self._driver.release()
        except DriverError as error:
            return DriverClosingError("closing the driver", f"{why}, and the agent has it open still: {error.answer}")
        return DriverClosedError("reading the GPUs", f"{why}: the agent has closed it until the label changes")

    def _unread(self, error: DriverError) -> Hardware:
        self._change_log.warn(f"driver: {error}")
        self._driver_version = ""  # a different one may come back
        gpus = tuple(replace(gpu, problem=str(error), instances=()) for gpu in self._gpus)
        return Hardware(gpus=gpus, driver_version="", problem=error)

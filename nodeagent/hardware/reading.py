"""Reads the GPUs of the node, and remembers the last ones that could be read for while the driver does not answer.

Takes a driver, returns a `Hardware`: a driver that does not answer as a whole gives the GPUs of before, each with that
problem and without instances, so that none of them is believed to be empty. Changes nothing.
"""

import logging
from dataclasses import dataclass, replace

from kube.change_log import ChangeLog
from nodeagent.hardware.driver import DriverClosedError, DriverError, GpuDriver, ObservedGpu

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

    def read(self, *, unloads: str = "") -> Hardware:
        """`unloads` is the label by which the driver is about to be unloaded: it is closed, and not opened again."""
        if unloads:
            return self._unread(self._close(unloads))
        try:
            self._driver_version = self._driver_version or self._driver.version()
            self._gpus = self._driver.observe()
        except DriverError as error:
            return self._unread(error)
        self._change_log.warn("")
        return Hardware(gpus=self._gpus, driver_version=self._driver_version, problem=None)

    def _close(self, unloads: str) -> DriverClosedError:
        why = f"the GPU Operator replaces the driver (node label {unloads})"
        try:
            self._driver.release()
        except DriverError as error:
            return DriverClosedError(
                "closing the driver", f"{why}, and it may have to wait for the agent: {error.answer}"
            )
        return DriverClosedError("reading the GPUs", f"{why}: the agent has closed it until the label changes")

    def _unread(self, error: DriverError) -> Hardware:
        self._change_log.warn(f"driver: {error}")
        self._driver_version = ""  # a different one may come back
        gpus = tuple(replace(gpu, problem=str(error), instances=()) for gpu in self._gpus)
        return Hardware(gpus=gpus, driver_version="", problem=error)

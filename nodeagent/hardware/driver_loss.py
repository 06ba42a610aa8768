"""Decides when the agent's process must end because only a new one can work with the NVIDIA driver.

A process never loads its NVML library a second time, and a container keeps the driver files that were mounted when it
started. So a driver that was replaced while the process used it ends the process at once, and one that cannot be used
ends it after a while. A library that never fitted the driver, as after an upgrade of packages without a reboot, is of
the second kind: each new process would load the same one, and end before anyone reads why. Never ends the
process itself, and returns nothing while the driver answers or merely hangs.
"""

from collections.abc import Callable

from nodeagent.durations import Durations
from nodeagent.hardware.driver import DriverError, DriverGoneError, DriverReplacedError

GONE_SECONDS = 600.0
"""As long as the kubelet takes to forget restarts: its back-off stays short on a node that never gets a driver."""


class DriverLoss:
    """Call `note` once a pass."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._durations, self._has_worked = Durations(clock), False

    def note(self, problem: DriverError | None) -> str:
        """Why the process must end; empty where it need not. `problem` is that of the last observation."""
        gone_seconds = self._durations.seconds("gone") if isinstance(problem, DriverGoneError) else 0.0
        self._durations.end_pass()
        self._has_worked = self._has_worked or problem is None
        if isinstance(problem, DriverReplacedError) and self._has_worked:
            why = "the NVIDIA driver was replaced while this process had the library of the old one loaded"
        elif gone_seconds >= GONE_SECONDS:
            why = f"the NVIDIA driver has been unusable for {GONE_SECONDS / 60:g} min"
        else:
            return ""
        return f"{why} ({problem}); the agent ends, so that it is started again with the driver that is there then"

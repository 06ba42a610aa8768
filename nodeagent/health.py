"""Reports whether this agent works: to its health and readiness pages, and to the heartbeat, which must stop with it.

Takes the end of each pass, returns sentences. An agent that completes no pass does not keep the status true, so it must
not seem alive to the controller either. Ends nothing and repairs nothing.
"""

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from kube.change_log import ChangeLog
from kube.reflector import Reflector
from nodeagent.hardware.driver_thread import ThreadedDriver

log = logging.getLogger(__name__)
STUCK_SECONDS = 600.0
"""A pass, or a driver call, that takes longer hangs: the health page reports it."""
SILENT_SECONDS = 60.0
"""Without a completed pass for this long the heartbeat is held back."""


class NoPassError(Exception):
    """No pass completes, so a heartbeat would wrongly claim that the status is kept true."""


class Passes:
    """Which passes completed; safe to read from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._completed_at, self.completed = clock(), 0
        self._change_log = ChangeLog(log)

    def complete(self) -> None:
        self._completed_at, self.completed = self._clock(), self.completed + 1
        self._change_log.is_new("")

    def fail(self, error: Exception) -> None:
        """Log it: the same traceback every few seconds would bury everything else in the log."""
        if self._change_log.is_new("".join(traceback.format_exception(error))):
            log.error("the pass failed", exc_info=error)
        else:
            log.warning("the pass failed again: %s: %s", type(error).__name__, error)

    def idle_seconds(self) -> float:
        """Since a pass completed; since the start, where none has."""
        return self._clock() - self._completed_at

    def check(self) -> None:
        """Raises NoPassError where there must be no heartbeat."""
        if self.idle_seconds() > SILENT_SECONDS:
            raise NoPassError(f"not sent: no pass completed in {SILENT_SECONDS:g} s")


class AgentHealth:
    """The two pages: what is wrong, and what is not ready yet."""

    def __init__(
        self, passes: Passes, driver: ThreadedDriver, watches: Mapping[str, Reflector[Any]], *, needed: str
    ) -> None:
        """`needed` names the watch without which there are no passes."""
        self._passes, self._driver, self._watches, self._needed = passes, driver, watches, needed

    def problems(self) -> list[str]:
        found = []
        seconds = self._passes.idle_seconds()
        if self._watches[self._needed].synced.is_set() and seconds > STUCK_SECONDS:
            found.append(f"no pass completed in {seconds:.0f} s")
        hanging = self._driver.hanging()
        # Passes continue without the driver, and none of them can do anything.
        if hanging is not None and hanging.seconds > STUCK_SECONDS:
            found.append(f"{hanging.what}: no answer from the driver for {hanging.seconds:.0f} s")
        return found

    def unready(self) -> list[str]:
        missing = [
            f"{what} not read from the API yet" for what, watch in self._watches.items() if not watch.synced.is_set()
        ]
        return missing or ([] if self._passes.completed else ["no pass has completed yet"])

"""Whether this process goes on, and whether it has something to do.

Set from any thread but in no signal handler: by the watches, the elector, the end of the process. The loop waits on
it, and every writer checks it before a write: while the process ends, nothing more is sent.
"""

import logging
import threading

log = logging.getLogger(__name__)


class Lifetime:
    def __init__(self) -> None:
        self.awake = threading.Event()
        """Set by whatever gives the loop something to do."""
        self.lost = False
        """This process must not go on, and another one is to be started."""
        self._ended = threading.Event()

    @property
    def over(self) -> bool:
        """Nothing more is begun."""
        return self._ended.is_set()

    def end(self) -> None:
        """End after what is being done now."""
        self._ended.set()
        self.awake.set()

    def give_up(self, why: str) -> None:
        """End, so that another process starts from a clean state."""
        if self.over:
            return
        log.error("%s: ending, so that a new process starts from a clean state", why)
        self.lost = True
        self.end()

    def wait(self, seconds: float) -> None:
        """Return when it is over, after this time at the latest."""
        self._ended.wait(seconds)

"""Counts the signals that programs of NVIDIA's pods get, and spaces them: each takes all devices off the node.

Takes how one is sent and a clock. Where so many had no effect, no other will: an administrator must act. Must never
send two within a deadline.
"""

from collections.abc import Callable
from typing import TypeAlias

PLUGIN, MPS_DAEMON = "nvidia-device-plugin", "mps-control-daemon"
SIGNALS = 3
PAUSE_SECONDS = 60.0
"""The program may have read the link while it named another key."""
SendSighup: TypeAlias = Callable[[str, str], str]
"""Pod UID and program; returns why it could not be sent. See `sighup`."""


class Signals:
    """By pod UID and key of the config that the program is to load."""

    def __init__(self, sighup: SendSighup, clock: Callable[[], float]) -> None:
        self._sighup, self._clock = sighup, clock
        self._sent: dict[tuple[str, str], tuple[int, float]] = {}
        """How many, and when the last one."""

    def send(self, pod_uid: str, program: str, key: str) -> str:
        """One, if it is due; returns why it could not be sent."""
        count, at = self._sent.get((pod_uid, key), (0, 0.0))
        if count >= SIGNALS or (count and self._clock() - at < PAUSE_SECONDS):
            return ""
        if why := self._sighup(pod_uid, program):
            return why
        self._sent[pod_uid, key] = (count + 1, self._clock())
        return ""

    def forget(self, pod_uid: str = "") -> None:
        """Begin to count again, for one pod or for all."""
        self._sent = {known: sent for known, sent in self._sent.items() if pod_uid and known[0] != pod_uid}

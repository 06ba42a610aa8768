"""Keeps short doubts out of the status.

Every pod that comes makes the List incomplete for some milliseconds. For what may be destroyed such a doubt counts at
once; the status would only flicker, and the controller freezes by its own view of bound pods anyway. Takes this pass's
verdicts, returns those to report: Unknown replaces Free once it has lasted. Used is never held back.
"""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.ages import Ages
from nodeagent.observed.usage import Use, Verdict


class DebouncedVerdicts:
    def __init__(self, *, clock: Callable[[], float], patience_seconds: float) -> None:
        self._ages = Ages(clock)
        self._patience_seconds = patience_seconds
        self._free: set[str] = set()
        self._now_free: set[str] = set()
        self.waits = False
        """Some doubt was held back in the pass before `end_pass`."""

    def of(self, device_id: str, verdict: Verdict) -> Verdict:
        """The verdict to report on an id in this pass."""
        doubted = verdict.use is Use.UNKNOWN and device_id in self._free
        if doubted and self._ages.seconds(device_id) < self._patience_seconds:
            self.waits = True
            verdict = Verdict(use=Use.FREE)
        if verdict.free:
            self._now_free.add(device_id)
        return verdict

    def end_pass(self) -> None:
        self._free, self._now_free, self.waits = self._now_free, set(), False
        self._ages.end_pass()

"""Ages of the agents' Leases, on this process's own monotonic clock.

Takes renewTimes as the watch brings them and returns how long each agent has been silent. A renewTime is only compared
for equality: the clocks of nodes are never trusted. The first one that is observed proves nothing yet, since it may be
weeks old: an agent that the plan's status reports as silent stays silent until its Lease is observed to change.
"""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class _Heartbeat:
    renew_time: str | None
    seen_at: float
    renewed: bool = False
    problem: str = ""
    """Why its agent cannot write the status, as the agent reports it."""


class Heartbeats:
    """One entry per node whose agent is expected or was heard; called under the lock of the state that owns it."""

    def __init__(self, *, silent_seconds: float) -> None:
        self._silent_seconds = silent_seconds
        self._beats: dict[str, _Heartbeat] = {}

    def observe(self, node: str, renew_time: str, now: float, *, problem: str = "") -> None:
        """The Lease shows this renewTime. A Lease that is deleted just ages: do not report that."""
        beat = self._beats.get(node)
        if beat is None or beat.renew_time is None:
            self._beats[node] = _Heartbeat(renew_time=renew_time, seen_at=now, problem=problem)
        elif beat.renew_time != renew_time:
            self._beats[node] = _Heartbeat(renew_time=renew_time, seen_at=now, renewed=True, problem=problem)

    def expect(self, node: str, now: float) -> None:
        """A plan for this node is there: from now on its agent should be heard."""
        self._beats.setdefault(node, _Heartbeat(renew_time=None, seen_at=now))

    def forget(self, node: str) -> None:
        """No agent is expected there any more."""
        self._beats.pop(node, None)

    def excuse(self, seconds: float, now: float) -> None:
        """No Lease could be seen for so long, until now: that makes no agent silent that was not silent before."""
        for beat in self._beats.values():
            if now - seconds < beat.seen_at + self._silent_seconds:
                beat.seen_at = min(now, beat.seen_at + seconds)

    def silent_for(self, node: str, now: float) -> float:
        """Seconds since its Lease last changed, or since its agent is expected."""
        beat = self._beats.get(node)
        return now - beat.seen_at if beat is not None else 0.0

    def silent(self, node: str, now: float) -> bool:
        """It was not heard for longer than an agent may be silent."""
        return self.silent_for(node, now) >= self._silent_seconds

    def problem(self, node: str) -> str:
        """Why its agent, whose Lease is renewed, cannot write the status; empty if it can."""
        beat = self._beats.get(node)
        return beat.problem if beat is not None else ""

    def alive(self, node: str, now: float, *, known_silent: bool) -> bool:
        """Fresh enough to be planned for. `known_silent`: the plan's status reports it already."""
        beat = self._beats.get(node)
        # The very sum of `holds_until`: rounded otherwise, the end could be missed permanently.
        if beat is None or beat.renew_time is None or now >= beat.seen_at + self._silent_seconds:
            return False
        return not beat.problem and (beat.renewed or not known_silent)

    def holds_until(self, node: str, now: float) -> float:
        """When `alive` may turn False without anything being heard."""
        beat = self._beats.get(node)
        end = beat.seen_at + self._silent_seconds if beat is not None else now
        return end if end > now else float("inf")

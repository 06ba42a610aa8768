"""Decides when the agent may write Ready again after the controller wrote Ready=Unknown in its place.

Ready is the agent's, except while the controller finds the agent silent or unable to report. If the agent overwrote it
at once, the controller, which has not observed a new heartbeat yet, would write Unknown again, and both would go on
until the next renewal. So the agent first sends a heartbeat and waits until AgentAlive is True. A controller that does
not run sets nothing: some seconds after the heartbeat the agent writes Ready without it. Must never write anything
itself.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from crds.v1alpha1.names import READY_OF_CONTROLLER, Condition, Reason

WAIT_SECONDS = 5.0
"""From our heartbeat to a controller's answer, where there is a controller."""
NODE_GONE_SECONDS = 60.0
"""The same while AgentAlive reports that there is no Node: heartbeats do not change that."""


class Beats(Protocol):
    """The heartbeat, `kube.leases.Heartbeat`."""

    taken: int

    def beat_now(self) -> None: ...


class Handback:
    """Call `may_write_ready` before every status write."""

    def __init__(self, beats: Beats, *, clock: Callable[[], float]) -> None:
        self._beats, self._clock = beats, clock
        self._taken_before: int | None = None
        """Heartbeats taken when the controller's Ready was first observed; None while Ready is ours."""
        self._announced_at: float | None = None

    def may_write_ready(self, live: Mapping[str, Any], *, reporting: bool) -> bool:
        """`live` is the status that the API holds; `reporting` is False while the API server refuses ours."""
        conditions = {condition.get("type"): condition for condition in live.get("conditions") or ()}
        theirs = conditions.get(Condition.READY.value, {}).get("reason") in READY_OF_CONTROLLER
        heard = conditions.get(Condition.AGENT_ALIVE.value, {})
        alive = heard.get("status") == "True"
        if not theirs or alive or not reporting:
            # A heartbeat would still carry what is not reported. What is written first is everything but Ready.
            self._taken_before = self._announced_at = None
            return not theirs or alive
        if self._taken_before is None:
            self._taken_before = self._beats.taken
        if self._beats.taken == self._taken_before:
            self._beats.beat_now()
            return False
        if self._announced_at is None:
            self._announced_at = self._clock()
        gone = heard.get("reason") == Reason.NODE_NOT_FOUND
        return self._clock() >= self._announced_at + (NODE_GONE_SECONDS if gone else WAIT_SECONDS)

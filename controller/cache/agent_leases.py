"""Which Leases of agents there are, and since when each is unchanged on this process's own monotonic clock.

Takes the versions that the watch brings, returns how old the last one is. Other than `heartbeats` it knows Leases of
Nodes that are gone, and forgets one that is deleted. Judges no agent.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLease:
    """One of them, as it was last seen."""

    version: str
    """resourceVersion."""
    unchanged_seconds: float


class AgentLeases:
    """Called under the lock of the state that owns it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def observe(self, node: str, version: str | None, now: float) -> bool:
        """None: it is gone. True where there was none before, or is none any more."""
        if version is None:
            return self._seen.pop(node, None) is not None
        known = self._seen.get(node)
        if known is None or known[0] != version:
            self._seen[node] = version, now
        return known is None

    def lease(self, node: str, now: float) -> AgentLease | None:
        version, at = self._seen.get(node, ("", now))
        return AgentLease(version=version, unchanged_seconds=now - at) if version else None

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self._seen)

"""Pods whose partitions were ready and which their scheduler did not bind: tried twice, then left alone for a while.

In go, after each pass, the pods that were dealt partitions which exist, out comes which of them have waited in vain
too long. The scheduler has a reason that we cannot simulate then (a plugin, an extender, a quota); to deal them the
same partitions for ever would keep these from everybody else. Owned by `controller.state`, under whose lock every
method runs; time is the process's monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

TRIES = 2
BACKOFF_SECONDS = (60.0, 300.0, 900.0)


@dataclass(slots=True, kw_only=True)
class _Try:
    node: str
    since: float = math.inf
    """When its partitions were first seen ready; infinite while they are not."""
    failures: int = 0
    back_at: float = -math.inf


class Unbound:
    """One memory per pending pod, by uid."""

    def __init__(self, *, bind_seconds: float) -> None:
        self._bind_seconds = bind_seconds
        self._tries: dict[str, _Try] = {}

    def dealt(self, ready: Mapping[str, str], now: float) -> None:
        """A pass has ended; `ready` (pod uid -> node) are dealt partitions that exist."""
        for uid, one in self._tries.items():
            if uid not in ready:
                one.since = math.inf
        for uid, node in ready.items():
            one = self._tries.setdefault(uid, _Try(node=node))
            if one.since == math.inf or one.node != node:
                one.node, one.since = node, now

    def overdue(self, now: float) -> list[str]:
        """Pods to plan anew, each once: those that were not bound in time, and those whose back-off is over."""
        found = []
        for uid, one in self._tries.items():
            if now - one.since >= self._bind_seconds:
                one.since, one.failures = math.inf, one.failures + 1
                if one.failures >= TRIES:
                    one.back_at = now + BACKOFF_SECONDS[min(one.failures - TRIES, len(BACKOFF_SECONDS) - 1)]
                found.append(uid)
            elif -math.inf < one.back_at <= now:
                one.back_at = -math.inf
                found.append(uid)
        return sorted(found)

    def backing_off(self, now: float) -> dict[str, str]:
        """Pods that are left alone now, with the node where they could have run."""
        return {uid: one.node for uid, one in sorted(self._tries.items()) if one.back_at > now}

    def keep(self, pending: Collection[str]) -> None:
        """Forget all pods but these."""
        self._tries = {uid: one for uid, one in self._tries.items() if uid in pending}

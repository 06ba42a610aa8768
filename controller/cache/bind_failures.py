"""Pods that their scheduler does not bind although their partitions are ready: planned twice, then left alone.

Takes, after each pass, the pods that were assigned partitions which exist, and the pods that schedulers bind; returns
the pods that have waited too long. The scheduler then has a reason that we cannot simulate (a plugin, an extender, a
quota); to assign them the same partitions forever would keep these from others. A scheduler that is slow or down
refuses no pod: waiting counts only while it binds pods that came after the partitions were ready and are no more
urgent. Owned by `controller.cache.state`, under whose lock every method runs; time is the process's monotonic clock.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from controller.model.views import PodView

TRIES = 2
BACKOFF_SECONDS = (60.0, 300.0, 900.0)
PATIENCE = 5.0
"""So many times `bind_seconds` count whatever the scheduler did: in a quiet cluster it has no other pod to bind."""


@dataclass(slots=True, kw_only=True)
class _Try:
    pod: PodView
    node: str
    since: float = math.inf
    """When its partitions were first seen ready, or the clock started again; infinite while they are not."""
    ready_at: float = math.inf
    """The former alone."""
    failures: int = 0
    back_at: float = -math.inf

    def start(self, now: float) -> None:
        self.since = self.ready_at = now

    def stop(self) -> None:
        self.start(math.inf)


class BindFailures:
    """One memory per pending pod, by uid."""

    def __init__(self, *, bind_seconds: float) -> None:
        self._bind_seconds = bind_seconds
        self._tries: dict[str, _Try] = {}
        self._newest_bound: dict[tuple[str, int], float] = {}
        """Per scheduler and priority, when the last comer of the pods that were bound came."""

    def bound(self, pod: PodView, *, came_at: float) -> None:
        """The pod's scheduler has bound it; it was pending since `came_at`."""
        key = (pod.scheduler_name, pod.priority)
        self._newest_bound[key] = max(came_at, self._newest_bound.get(key, -math.inf))

    def assigned(self, ready: Iterable[tuple[PodView, str]], now: float) -> None:
        """A pass has ended; `ready` are the pods whose partitions exist, each with its node."""
        found = {pod.uid: (pod, node) for pod, node in ready}
        for uid, one in self._tries.items():
            if uid not in found:
                one.stop()
        for uid, (pod, node) in found.items():
            one = self._tries.setdefault(uid, _Try(pod=pod, node=node))
            if one.since == math.inf or one.node != node:
                one.start(now)
            one.pod, one.node = pod, node

    def overdue(self, now: float) -> list[str]:
        """Pods to plan again, each once: those that were not bound in time, and those whose back-off is over."""
        found = []
        for uid, one in self._tries.items():
            if now - one.since >= self._bind_seconds:
                if not self._passed_over(one, now):
                    one.since = now
                    continue
                one.stop()
                one.failures += 1
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

    def retain(self, pending: Collection[str]) -> None:
        """Forget all pods but these."""
        self._tries = {uid: one for uid, one in self._tries.items() if uid in pending}

    def _passed_over(self, one: _Try, now: float) -> bool:
        """Its scheduler bound a pod that was to be tried after it, or had more than enough time."""
        if now - one.ready_at >= PATIENCE * self._bind_seconds:
            return True
        return any(
            scheduler == one.pod.scheduler_name and priority <= one.pod.priority and came_at > one.since
            for (scheduler, priority), came_at in self._newest_bound.items()
        )

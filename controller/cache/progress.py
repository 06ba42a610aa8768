"""Clocks of GPUs that are changing to match their plan: how long to expect them, and when to leave them alone.

Takes readings of one GPU as they arrive and returns whether what is planned for it may still be expected (`under_way`)
and whether it failed lately (`backing_off`). A clock starts when the GPU is first seen changing to an item, and again
when the process starts: time is this process's monotonic clock only. A stop counts only once the agent has read the
plan that holds the item; what it reports about an older plan does not count against the new one. Does no I/O.
"""

import math
from dataclasses import dataclass

from controller.api.plans import GpuReading, Stage
from crds.v1alpha1.names import GpuState

FIRST_BACKOFF_SECONDS = 5.0
LAST_BACKOFF_SECONDS = 600.0
MOST_FAILURES = 10
"""No more are counted: the pause is the longest one by then, and a GPU that fails for weeks must not overflow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What to expect of one GPU, and until when that answer holds if nothing is heard."""

    settled: bool
    under_way: bool
    backing_off: bool
    holds_until: float


@dataclass(slots=True, kw_only=True)
class _Clock:
    item_hash: str
    generation: int
    """The first generation that is known to hold the item."""
    since: float | None = None
    stopped: bool = False
    failures: int = 0
    failed_hash: str | None = None
    back_at: float = -math.inf


class Progress:
    """One clock per GPU; called under the lock of the state that owns it."""

    def __init__(self, *, under_way_seconds: float) -> None:
        self._under_way_seconds = under_way_seconds
        self._clocks: dict[str, dict[int, _Clock]] = {}

    def outlook(
        self, plan_uid: str, gpu: GpuReading, *, generation: int, observed_generation: int, now: float
    ) -> Outlook:
        """Judge one GPU. Call for every reading of its plan, and again when `holds_until` has passed."""
        clock = self._clock(plan_uid, gpu, generation)
        if gpu.stage is Stage.SETTLED:
            clock.since, clock.stopped = None, False
            if clock.failed_hash == gpu.item_hash or now >= clock.back_at:
                # The agent got there after all, or has been quiet for long enough.
                clock.failures, clock.failed_hash, clock.back_at = 0, None, -math.inf
        elif clock.since is None:
            clock.since = now
        stopped = gpu.stage is Stage.STOPPED and observed_generation >= clock.generation
        if stopped and not clock.stopped and gpu.view.state == GpuState.FAILED:
            clock.back_at = now + min(FIRST_BACKOFF_SECONDS * 2**clock.failures, LAST_BACKOFF_SECONDS)
            clock.failures = min(clock.failures + 1, MOST_FAILURES)
            clock.failed_hash = gpu.item_hash
        clock.stopped = stopped
        deadline = math.inf if clock.since is None else clock.since + self._under_way_seconds
        under_way = clock.since is not None and not stopped and now < deadline
        backing_off = now < clock.back_at
        return Outlook(
            settled=gpu.stage is Stage.SETTLED,
            under_way=under_way,
            backing_off=backing_off,
            holds_until=min(deadline if under_way else math.inf, clock.back_at if backing_off else math.inf),
        )

    def forget(self, plan_uid: str) -> None:
        """Drop the clocks of a plan that is gone."""
        self._clocks.pop(plan_uid, None)

    def _clock(self, plan_uid: str, gpu: GpuReading, generation: int) -> _Clock:
        clocks = self._clocks.setdefault(plan_uid, {})
        clock = clocks.get(gpu.view.index)
        if clock is None:
            clock = clocks[gpu.view.index] = _Clock(item_hash=gpu.item_hash, generation=generation)
        elif clock.item_hash != gpu.item_hash:
            clock.item_hash, clock.generation, clock.since, clock.stopped = gpu.item_hash, generation, None, False
        return clock

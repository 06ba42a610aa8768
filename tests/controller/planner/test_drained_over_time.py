"""A large pod among small ones that run for hours, and alongside one that can never run: replayed hour by hour.

Pods get the partitions that plans give them, and no others; each small pod runs for eight hours. What the kubelet may
give in place of them (another idle partition of that node, of the same resource) is not what this is about.
"""

from dataclasses import replace

import pytest

from controller.cache.drain_turns import DrainTurns
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.world import applied, bound

MINUTE, HOUR = 60, 3600
STEP_SECONDS = 6 * MINUTE
AGEING_SECONDS = 600
LIFETIME_SECONDS = 8 * HOUR


class Days:
    """A small pod every twelve minutes, more than two GPUs can run, and a pass every six."""

    def __init__(self, *others: PodView) -> None:
        daemon = pod("daemon", node_name="n1", cpu=100)
        self.snapshot: Snapshot = cluster(server("n1", mig(0), mig(1)), pods=[daemon])
        self.turns = DrainTurns()
        self.others = others
        self.came: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.bound_at: dict[str, int] = {}

    def run(self, until: int) -> "Days":
        for now in range(0, until, STEP_SECONDS):
            self._end(now)
            for one in self.others:
                if one.created == now:
                    self._come(one)
            if now % (12 * MINUTE) == 0:
                self._come(pod(f"small-{now:07}", "1g.5gb", created=now))
            self._pass(now)
        return self

    @property
    def small(self) -> int:
        """How many small pods have started."""
        return sum(name.startswith("small") for name in self.bound_at)

    def _come(self, one: PodView) -> None:
        self.came[one.uid] = one.created
        self.snapshot = replace(self.snapshot, pending=(*self.snapshot.pending, one))

    def _pass(self, now: int) -> None:
        pending = {one.uid for one in self.snapshot.pending}
        aged = frozenset(uid for uid in pending if now - self.came[uid] >= AGEING_SECONDS)
        snapshot = replace(self.snapshot, aged=aged, drained_for=aged, resting=self.turns.resting(now))
        result = plan(snapshot)
        self.turns.note(result.drained, pending, now, wall=now)
        self.snapshot = _bound_there(applied(snapshot, result), result)
        for one in result.placed:
            self.bound_at[one.key[1]] = now
            self.ends[one.key[1]] = now + LIFETIME_SECONDS

    def _end(self, now: int) -> None:
        over = {f"team/{name}" for name, at in self.ends.items() if at <= now}
        plans = tuple(
            replace(
                each,
                gpus=tuple(
                    replace(
                        gpu,
                        partitions=tuple(
                            replace(part, state="Free", pod="") if part.pod in over else part for part in gpu.partitions
                        ),
                    )
                    for gpu in each.gpus
                ),
            )
            for each in self.snapshot.plans
        )
        pods = tuple(one for one in self.snapshot.pods if one.title not in over)
        self.snapshot = replace(self.snapshot, plans=plans, pods=pods)


def _bound_there(snapshot: Snapshot, result: PlanningResult) -> Snapshot:
    """As `bound`, and each pod gets partitions of the GPUs that are planned for it: nothing else is on offer."""
    plans = snapshot.plans
    for one in result.placed:
        alone = tuple(replace(each, gpus=tuple(gpu for gpu in each.gpus if gpu.index in one.gpus)) for each in plans)
        held = bound(replace(snapshot, plans=alone), replace(result, placed=(one,)))
        there = {gpu.index: gpu for each in held.plans for gpu in each.gpus}
        plans = tuple(replace(each, gpus=tuple(there.get(gpu.index, gpu) for gpu in each.gpus)) for each in plans)
    where = {one.uid: one.node for one in result.placed}
    running = [replace(one, node=where[one.uid], unschedulable=False) for one in snapshot.pending if one.uid in where]
    pending = tuple(one for one in snapshot.pending if one.uid not in where)
    return replace(snapshot, plans=plans, pods=(*snapshot.pods, *running), pending=pending)


LARGE = pod("large", "7g.40gb", created=3 * HOUR)
NEVER = replace(
    pod("never", "7g.40gb", created=2 * HOUR), requests=(("cpu", 1000), ("a.b/c", 1), ("nvidia.com/mig-7g.40gb", 1))
)
TOO_MUCH = pod("too-much", "7g.40gb", created=2 * HOUR + STEP_SECONDS, cpu=192_000)
"""It fits an empty node, and never alongside the daemon, which stays."""


@pytest.fixture(scope="module")
def alone() -> Days:
    return Days(LARGE).run(until=20 * HOUR)


def test_a_large_pod_is_served_among_small_ones_that_run_for_eight_hours(alone: Days) -> None:
    assert 0 < alone.bound_at["large"] - LARGE.created <= 2 * LIFETIME_SECONDS


def test_pods_in_front_of_it_that_can_never_run_cost_no_pod_a_place(alone: Days) -> None:
    days = Days(NEVER, TOO_MUCH, LARGE).run(until=20 * HOUR)

    assert days.bound_at == alone.bound_at

"""Planned twice, not bound twice by a scheduler that is not slow: then a pod is left alone, longer each time."""

import pytest

from controller.cache.bind_failures import BACKOFF_SECONDS, PATIENCE, BindFailures
from controller.model.views import PodView
from tests.builders import objects
from tests.builders.views import pod_view


def pod(name: str = "a", priority: int = 0, scheduler: str = "default-scheduler") -> PodView:
    return pod_view(objects.pod(name, priority=priority, schedulerName=scheduler))


READY = [(pod(), "n1")]


class FailuresRig:
    """One pod whose partitions are ready on n1; `busy`: its scheduler binds whatever comes."""

    def __init__(self, *, busy: bool = True) -> None:
        self.failures = BindFailures(bind_seconds=60)
        self.busy = busy

    def overdue(self, now: float) -> list[str]:
        if self.busy:
            self.failures.bound(pod("later"), came_at=now - 1)
        return self.failures.overdue(now)


def failed_twice() -> FailuresRig:
    rig = FailuresRig()
    rig.failures.assigned(READY, 0)
    assert rig.overdue(60) == ["uid-a"]
    rig.failures.assigned(READY, 60)
    assert rig.overdue(120) == ["uid-a"]
    return rig


def test_one_failure_is_no_reason_to_give_up() -> None:
    rig = FailuresRig()
    rig.failures.assigned(READY, 0)

    assert rig.overdue(59) == []
    assert rig.overdue(60) == ["uid-a"]
    assert rig.overdue(61) == []
    assert rig.failures.backing_off(61) == {}


def test_two_are_until_the_back_off_is_over() -> None:
    rig = failed_twice()

    assert rig.failures.backing_off(121) == {"uid-a": "n1"}
    assert rig.overdue(120 + BACKOFF_SECONDS[0]) == ["uid-a"]
    assert rig.failures.backing_off(120 + BACKOFF_SECONDS[0]) == {}


def test_the_next_back_off_is_longer() -> None:
    rig = failed_twice()
    rig.overdue(180)
    rig.failures.assigned(READY, 180)
    rig.overdue(240)

    assert rig.failures.backing_off(240 + BACKOFF_SECONDS[1] - 1) == {"uid-a": "n1"}


@pytest.mark.parametrize("again", [READY, [(pod(), "n2")]], ids=["not ready meanwhile", "on another node"])
def test_time_runs_only_while_its_partitions_are_there(again: list[tuple[PodView, str]]) -> None:
    rig = FailuresRig()
    rig.failures.assigned(READY, 0)
    if again is READY:
        rig.failures.assigned([], 50)
    rig.failures.assigned(again, 55)

    assert rig.overdue(114) == []
    assert rig.overdue(115) == ["uid-a"]


def test_a_pod_that_is_bound_or_gone_is_forgotten() -> None:
    rig = failed_twice()
    rig.failures.retain([])

    assert rig.failures.backing_off(121) == {}


@pytest.mark.parametrize(
    ("other", "came_at", "counts"),
    [
        (pod("other"), 1, True),
        (pod("other", priority=-5), 1, True),
        (pod("other"), -1, False),  # it was before the planned one in the queue
        (pod("other", priority=5), 1, False),  # it overtakes the planned one in the queue
        (pod("other", scheduler="another"), 1, False),
    ],
    ids=["later", "less urgent", "earlier", "more urgent", "of another scheduler"],
)
def test_only_a_scheduler_that_passes_the_pod_over_refuses_it(other: PodView, came_at: float, counts: bool) -> None:
    failures = BindFailures(bind_seconds=60)
    failures.assigned(READY, 0)
    failures.bound(other, came_at=came_at)

    assert failures.overdue(60) == (["uid-a"] if counts else [])


def test_after_a_pause_of_its_scheduler_the_clock_starts_again() -> None:
    failures = BindFailures(bind_seconds=60)
    failures.assigned(READY, 0)
    assert failures.overdue(60) == []
    failures.bound(pod("other"), came_at=50)
    assert failures.overdue(119) == []
    assert failures.overdue(120) == []
    failures.bound(pod("other"), came_at=121)
    assert failures.overdue(179) == []
    assert failures.overdue(180) == ["uid-a"]


def test_where_nothing_else_is_bound_a_pod_keeps_its_partitions_not_for_ever() -> None:
    rig = FailuresRig(busy=False)
    rig.failures.assigned(READY, 0)
    found = [now for now in range(0, 1000, 10) if rig.overdue(now)]

    assert found == [PATIENCE * 60]

"""Planned twice, not bound twice by a scheduler that is not slow: then a pod is left alone, longer each time."""

import pytest

from controller.cache.bind_failures import BACKOFF_SECONDS, PATIENCE, Unbound
from controller.model.views import PodView


def pod(name: str = "a", priority: int = 0, scheduler: str = "default-scheduler") -> PodView:
    return PodView(namespace="default", name=name, uid=f"uid-{name}", priority=priority, scheduler_name=scheduler)


READY = [(pod(), "n1")]


class Rig:
    """One pod whose partitions are ready on n1; `busy`: its scheduler binds whatever comes."""

    def __init__(self, *, busy: bool = True) -> None:
        self.unbound = Unbound(bind_seconds=60)
        self.busy = busy

    def overdue(self, now: float) -> list[str]:
        if self.busy:
            self.unbound.bound(pod("later"), came_at=now - 1)
        return self.unbound.overdue(now)


def failed_twice() -> Rig:
    rig = Rig()
    rig.unbound.assigned(READY, 0)
    assert rig.overdue(60) == ["uid-a"]
    rig.unbound.assigned(READY, 60)
    assert rig.overdue(120) == ["uid-a"]
    return rig


def test_one_failure_is_no_reason_to_give_up() -> None:
    rig = Rig()
    rig.unbound.assigned(READY, 0)

    assert rig.overdue(59) == []
    assert rig.overdue(60) == ["uid-a"]
    assert rig.overdue(61) == []
    assert rig.unbound.backing_off(61) == {}


def test_two_are_until_the_back_off_is_over() -> None:
    rig = failed_twice()

    assert rig.unbound.backing_off(121) == {"uid-a": "n1"}
    assert rig.overdue(120 + BACKOFF_SECONDS[0]) == ["uid-a"]
    assert rig.unbound.backing_off(120 + BACKOFF_SECONDS[0]) == {}


def test_the_next_back_off_is_longer() -> None:
    rig = failed_twice()
    rig.overdue(180)
    rig.unbound.assigned(READY, 180)
    rig.overdue(240)

    assert rig.unbound.backing_off(240 + BACKOFF_SECONDS[1] - 1) == {"uid-a": "n1"}


@pytest.mark.parametrize("again", [READY, [(pod(), "n2")]], ids=["not ready meanwhile", "on another node"])
def test_time_runs_only_while_its_partitions_are_there(again: list[tuple[PodView, str]]) -> None:
    rig = Rig()
    rig.unbound.assigned(READY, 0)
    if again is READY:
        rig.unbound.assigned([], 50)
    rig.unbound.assigned(again, 55)

    assert rig.overdue(114) == []
    assert rig.overdue(115) == ["uid-a"]


def test_a_pod_that_is_bound_or_gone_is_forgotten() -> None:
    rig = failed_twice()
    rig.unbound.keep([])

    assert rig.unbound.backing_off(121) == {}


@pytest.mark.parametrize(
    ("other", "came_at", "counts"),
    [
        (pod("other"), 1, True),
        (pod("other", priority=-5), 1, True),
        (pod("other"), -1, False),  # it was before ours in the queue
        (pod("other", priority=5), 1, False),  # it overtakes ours in the queue
        (pod("other", scheduler="another"), 1, False),
    ],
    ids=["later", "less urgent", "earlier", "more urgent", "of another scheduler"],
)
def test_only_a_scheduler_that_passes_the_pod_over_refuses_it(other: PodView, came_at: float, counts: bool) -> None:
    unbound = Unbound(bind_seconds=60)
    unbound.assigned(READY, 0)
    unbound.bound(other, came_at=came_at)

    assert unbound.overdue(60) == (["uid-a"] if counts else [])


def test_after_a_pause_of_its_scheduler_the_clock_starts_again() -> None:
    unbound = Unbound(bind_seconds=60)
    unbound.assigned(READY, 0)
    assert unbound.overdue(60) == []
    unbound.bound(pod("other"), came_at=50)
    assert unbound.overdue(119) == []
    assert unbound.overdue(120) == []
    unbound.bound(pod("other"), came_at=121)
    assert unbound.overdue(179) == []
    assert unbound.overdue(180) == ["uid-a"]


def test_where_nothing_else_is_bound_a_pod_keeps_its_partitions_not_for_ever() -> None:
    rig = Rig(busy=False)
    rig.unbound.assigned(READY, 0)
    found = [now for now in range(0, 1000, 10) if rig.overdue(now)]

    assert found == [PATIENCE * 60]

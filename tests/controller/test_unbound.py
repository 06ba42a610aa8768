"""Planned twice, not bound twice: then a pod is left alone for a while, longer each time."""

from controller.unbound import BACKOFF_SECONDS, Unbound

READY = {"uid-a": "n1"}


def failed_twice() -> Unbound:
    unbound = Unbound(bind_seconds=60)
    unbound.dealt(READY, 0)
    assert unbound.overdue(60) == ["uid-a"]
    unbound.dealt(READY, 60)
    assert unbound.overdue(120) == ["uid-a"]
    return unbound


def test_one_failure_is_no_reason_to_give_up() -> None:
    unbound = Unbound(bind_seconds=60)
    unbound.dealt(READY, 0)

    assert unbound.overdue(59) == []
    assert unbound.overdue(60) == ["uid-a"]
    assert unbound.overdue(61) == []
    assert unbound.backing_off(61) == {}


def test_two_are_until_the_back_off_is_over() -> None:
    unbound = failed_twice()

    assert unbound.backing_off(121) == READY
    assert unbound.overdue(120 + BACKOFF_SECONDS[0]) == ["uid-a"]
    assert unbound.backing_off(120 + BACKOFF_SECONDS[0]) == {}


def test_the_next_back_off_is_longer() -> None:
    unbound = failed_twice()
    unbound.overdue(180)
    unbound.dealt(READY, 180)
    unbound.overdue(240)

    assert unbound.backing_off(240 + BACKOFF_SECONDS[1] - 1) == READY


def test_time_runs_only_while_its_partitions_are_there() -> None:
    unbound = Unbound(bind_seconds=60)
    unbound.dealt(READY, 0)
    unbound.dealt({}, 50)
    unbound.dealt(READY, 55)

    assert unbound.overdue(100) == []


def test_a_pod_that_is_bound_or_gone_is_forgotten() -> None:
    unbound = failed_twice()
    unbound.keep([])

    assert unbound.backing_off(121) == {}

"""The batch window under a clock that only the test moves."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cache.batcher import ALONE_SECONDS, Batcher
from tests.clock import Clock


def batcher(clock: Clock, idle: float = 10.0, timeout: float = 60.0) -> Batcher[str]:
    return Batcher(idle_seconds=idle, timeout_seconds=timeout, clock=clock)


def test_closes_after_the_idle_time() -> None:
    clock = Clock()
    window = batcher(clock)
    assert window.due_in() is None
    window.add("a")
    assert window.due_in() == 10.0
    clock.now += 7
    window.add("b", extend=True)
    assert window.due_in() == 10.0
    clock.now += 10
    assert window.due_in() == 0.0
    assert window.take() == ("a", "b")
    assert not window.open


def test_a_key_that_does_not_extend_opens_the_window_and_does_not_hold_it_open() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a")
    for number in range(9):
        clock.now += 1
        window.add(f"b{number}")
    assert window.due_in() == 1.0
    window.add("c", extend=True)
    assert window.due_in() == 10.0
    assert len(window.take()) == 11


def test_closes_after_the_timeout_however_many_arrive() -> None:
    clock = Clock()
    window = batcher(clock)
    for number in range(12):
        window.add(f"pod-{number}", extend=True)
        clock.now += 5
    assert window.due_in() == 0.0


def test_a_key_that_comes_again_does_not_hold_the_window_open() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a")
    clock.now += 9
    window.add("a", extend=True)
    assert window.due_in() == 1.0


def test_a_discarded_key_closes_the_window_when_it_was_the_last() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a")
    window.discard("a")
    window.discard("never seen")
    assert window.due_in() is None


def test_taking_starts_afresh() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a")
    clock.now += 30
    window.take()
    window.add("b")
    assert window.due_in() == 10.0


@given(st.lists(st.floats(min_value=0, max_value=30), min_size=1, max_size=40))
def test_never_later_than_the_timeout_and_never_earlier_than_the_idle_time(gaps: list[float]) -> None:
    clock = Clock()
    window = batcher(clock)
    first = clock.now
    last = first
    for number, gap in enumerate(gaps):
        if window.due_in() == 0.0:
            break
        window.add(f"key-{number}", extend=True)
        last = clock.now
        clock.now += gap
    due = window.due_in()
    assert due is not None
    end = clock.now + due
    if due > 0:
        assert end <= first + 60.0 + 1e-6
        assert end == min(first + 60.0, last + 10.0)
    else:
        assert clock.now >= min(first + 60.0, last + 10.0)


@pytest.mark.parametrize(
    ("since_last_batch", "extend", "early"),
    [(None, True, True), (5.0, True, True), (4.75, True, False), (100.0, False, False)],
    ids=["no batch yet", "after a quiet time", "part of a burst", "no new request"],
)
def test_what_comes_alone_after_a_quiet_time_may_be_tried_early(
    since_last_batch: float | None, *, extend: bool, early: bool
) -> None:
    clock = Clock()
    window = batcher(clock)
    if since_last_batch is not None:
        window.add("before", extend=True)
        window.take()
        clock.now += since_last_batch
        window.add("node")
        window.take()
    window.add("a", extend=extend)
    assert (window.early, window.next_in()) == (False, ALONE_SECONDS if early else 10.0)
    clock.now += ALONE_SECONDS
    assert window.early is early
    assert window.due_in() == 10.0 - ALONE_SECONDS


def test_the_first_of_a_burst_is_not_tried_early_nor_are_the_others() -> None:
    clock = Clock()
    window = batcher(clock)
    for name in "abc":
        window.add(name, extend=True)
        assert not window.early
        clock.now += 0.125
    clock.now += 1
    assert (window.early, window.next_in()) == (False, 8.875)


def test_a_request_that_comes_into_an_open_window_may_be_tried_early() -> None:
    clock = Clock()
    window = batcher(clock)
    early = []
    for change in (partial(window.add, "node"), partial(window.add, "pod", extend=True)):
        change()
        clock.now += ALONE_SECONDS
        early.append(window.early)
    window.discard("pod")
    window.discard("node")
    assert [*early, window.early] == [False, True, False]
    assert window.next_in() is None


def test_a_batch_that_was_tried_in_vain_is_not_tried_again_and_closes_when_it_would_have() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a", extend=True)
    clock.now += 2
    window.put_back(window.take())
    assert (window.early, window.next_in()) == (False, 8.0)
    for number in range(20):
        clock.now += 3
        window.add(f"b{number}", extend=True)
        assert not window.early, "the rest of a burst costs no pass each"
    assert window.due_in() == 0.0
    assert window.take()[:3] == ("a", "b0", "b1")


def test_what_came_during_the_trial_is_kept() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a", extend=True)
    batch = window.take()
    clock.now += 2
    window.add("b", extend=True)
    window.add("a", extend=True)
    window.put_back(batch)
    assert (window.early, window.due_in()) == (False, 10.0)
    clock.now += 9
    window.add("c", extend=True)
    clock.now += 9
    assert window.due_in() == 1.0
    assert window.take() == ("a", "b", "c")


def test_after_a_batch_that_vanished_the_next_may_be_tried() -> None:
    clock = Clock()
    window = batcher(clock)
    window.add("a", extend=True)
    window.put_back(window.take())
    window.discard("a")
    clock.now += 5
    window.add("b", extend=True)
    assert window.next_in() == ALONE_SECONDS

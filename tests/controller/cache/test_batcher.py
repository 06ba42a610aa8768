"""The batch window under a clock that only the test moves."""

from hypothesis import given
from hypothesis import strategies as st

from controller.cache.batcher import Batcher
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

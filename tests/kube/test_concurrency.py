"""Several requests at once, on threads that meet at a barrier: without parallel runs they would wait forever."""

import threading

import pytest

from kube.concurrency import REQUESTS, at_once
from tests.waiting import SECONDS


@pytest.mark.parametrize("count", [0, 1, 2, 3 * REQUESTS])
def test_answers_come_in_the_order_of_the_items(count: int) -> None:
    assert at_once(lambda item: item * item, range(count)) == tuple(item * item for item in range(count))


def test_many_are_under_way_together() -> None:
    meeting = threading.Barrier(REQUESTS, timeout=SECONDS)
    assert len(at_once(lambda _: meeting.wait(), range(REQUESTS))) == REQUESTS


def test_a_single_one_needs_no_thread() -> None:
    assert at_once(lambda _: threading.current_thread(), [1]) == (threading.current_thread(),)


def test_what_one_raises_is_raised_after_the_others() -> None:
    done = []

    def act(item: int) -> None:
        if item == 0:
            raise ValueError("this one")
        done.append(item)

    with pytest.raises(ValueError, match="this one"):
        at_once(act, range(5))
    assert sorted(done) == [1, 2, 3, 4]

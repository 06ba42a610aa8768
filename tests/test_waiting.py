"""The waiting helper returns what it waited for, and fails with a message that helps."""

import pytest

from tests.waiting import eventually


def test_the_first_truthy_observation_is_returned() -> None:
    observations = iter(["", "", "here", "later"])
    assert eventually(lambda: next(observations), "an answer") == "here"


def test_a_failure_names_what_was_awaited_and_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"^timed out after 0 s waiting for: a pod; last seen: \[\]$"):
        eventually(list, "a pod", seconds=0)


def test_a_failure_shows_what_the_test_chose_to_show() -> None:
    with pytest.raises(AssertionError, match="waiting for: Running; last seen: 'Pending'"):
        eventually(lambda: False, "Running", seconds=0, seen=lambda: "Pending")


def test_an_error_while_observing_is_not_waited_out() -> None:
    def observe() -> bool:
        raise ValueError("not a pod")

    with pytest.raises(ValueError, match="not a pod"):
        eventually(observe, "a pod")

"""When the agent's process must end for the driver's sake."""

from nodeagent.hardware.driver import (
    DriverError,
    DriverGoneError,
    DriverReplacedError,
    DriverTimeoutError,
    NotPermittedError,
)
from nodeagent.hardware.driver_loss import GONE_SECONDS, DriverLoss
from tests.clock import Clock

GONE = DriverGoneError("counting the GPUs", "Driver Not Loaded")


REPLACED = DriverReplacedError("counting the GPUs", "version mismatch")


def test_a_replaced_driver_ends_the_process_at_once() -> None:
    loss = DriverLoss(Clock())
    assert loss.note(None) == ""

    reason = loss.note(REPLACED)

    assert "replaced" in reason
    assert "counting the GPUs: version mismatch" in reason


def test_a_library_that_never_fitted_the_driver_does_not_end_every_new_process_at_once() -> None:
    clock = Clock()
    loss = DriverLoss(clock)
    assert loss.note(GONE) == ""
    assert loss.note(REPLACED) == "", "a new process would load the same library, and no person would read why"
    clock.now += GONE_SECONDS - 1
    assert loss.note(REPLACED) == ""
    clock.now += 1

    reason = loss.note(REPLACED)

    assert "unusable for 10 min" in reason
    assert "was replaced" not in reason


def test_a_driver_that_is_gone_ends_the_process_after_a_while() -> None:
    clock = Clock()
    loss = DriverLoss(clock)
    assert loss.note(GONE) == ""
    clock.now += GONE_SECONDS - 1
    assert loss.note(GONE) == ""
    clock.now += 1
    assert "unusable for 10 min" in loss.note(GONE)


def test_a_driver_that_comes_back_starts_the_time_again() -> None:
    for between in (None, DriverTimeoutError("reading", "late"), NotPermittedError("reading", "no")):
        clock = Clock()
        loss = DriverLoss(clock)
        loss.note(GONE)
        clock.now += GONE_SECONDS
        assert loss.note(between) == ""
        assert loss.note(GONE) == ""


def test_other_problems_never_end_the_process() -> None:
    clock = Clock()
    loss = DriverLoss(clock)
    for _ in range(3):
        clock.now += GONE_SECONDS
        assert loss.note(DriverTimeoutError("counting the GPUs", "no answer")) == ""
        assert loss.note(DriverError("counting the GPUs", "Unknown Error")) == ""

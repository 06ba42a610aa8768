"""The retry gate: pauses, Retry-After and what is reported, on a clock that only the test moves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import errors
from kube.retry import RetryGate
from tests.clock import Clock

FORBIDDEN = errors.Forbidden("pods is forbidden", status=403)
INVALID = errors.Invalid("spec is invalid", status=422)
GONE = errors.NotFound('pods "p" not found', status=404)
CONFLICT = errors.Conflict("the object has been modified", status=409)
RECREATED = errors.Invalid(
    "uid differs", status=422, body={"details": {"causes": [{"field": "metadata.uid", "message": "differs"}]}}
)
TEST_FAILED = errors.Invalid(errors.PATCH_REJECTED, status=422)


def overloaded(seconds: float) -> errors.Unavailable:
    error = errors.Unavailable("too many requests", status=429)
    error.retry_after_seconds = seconds
    return error


def gate(clock: Clock) -> RetryGate[str]:
    return RetryGate(clock=clock, first_seconds=1.0, cap_seconds=8.0, jitter=lambda: 1.0)


def pauses(retries: RetryGate[str], clock: Clock, error: errors.ApiError, count: int) -> list[float]:
    """Fail as soon as it is allowed, so many times."""
    found = []
    for _ in range(count):
        retries.failed("a", error)
        at = retries.retry_at("a")
        found.append(at - clock.now)
        assert not retries.may_send("a")
        clock.now = at
        assert retries.may_send("a")
    return found


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FORBIDDEN, [1, 2, 4, 8, 8]),
        (CONFLICT, [1, 2, 4, 8, 8]),
        (overloaded(0), [1, 2, 4, 8, 8]),
        (overloaded(5), [5, 5, 5, 8, 8]),
        (overloaded(30), [30, 30, 30, 30, 30]),
    ],
)
def test_pauses_double_and_retry_after_is_the_least(error: errors.ApiError, expected: list[float]) -> None:
    clock = Clock()
    assert pauses(gate(clock), clock, error, 5) == expected


def test_success_resets_the_pause_and_the_report() -> None:
    clock = Clock()
    retries = gate(clock)
    pauses(retries, clock, FORBIDDEN, 3)
    retries.succeeded("a")
    assert retries.retry_at("a") == -math.inf
    assert retries.failed("a", FORBIDDEN)
    assert retries.retry_at("a") == clock.now + 1


def test_success_may_pause_as_well() -> None:
    clock = Clock()
    retries = gate(clock)
    retries.succeeded("a", pause_seconds=5)
    assert not retries.may_send("a")
    clock.now += 5
    assert retries.may_send("a")


def test_each_key_pauses_by_itself() -> None:
    retries = gate(Clock())
    retries.failed("a", FORBIDDEN)
    assert not retries.may_send("a")
    assert retries.may_send("b")


@pytest.mark.parametrize(
    ("sequence", "reported"),
    [
        ([FORBIDDEN, FORBIDDEN, FORBIDDEN], [True, False, False]),
        ([INVALID, INVALID], [True, False]),
        ([GONE, GONE], [True, False]),
        ([FORBIDDEN, INVALID, FORBIDDEN], [True, True, True]),
        ([overloaded(0), overloaded(0)], [True, True]),
        ([CONFLICT, RECREATED, TEST_FAILED], [False, False, False]),
        ([FORBIDDEN, CONFLICT, FORBIDDEN], [True, False, False]),
    ],
)
def test_a_permanent_refusal_is_reported_once_per_text(sequence: list[errors.ApiError], reported: list[bool]) -> None:
    retries = gate(Clock())
    assert [retries.failed("a", error) for error in sequence] == reported


def test_another_keys_refusal_is_reported_too() -> None:
    retries = gate(Clock())
    assert [retries.failed(key, FORBIDDEN) for key in "ab"] == [True, True]


def test_keys_that_are_not_tried_any_more_are_forgotten() -> None:
    clock = Clock()
    retries = gate(clock)
    retries.failed("gone", FORBIDDEN)
    clock.now += 1000
    retries.failed("a", FORBIDDEN)
    assert retries.retry_at("gone") == -math.inf
    assert retries.retry_at("a") > clock.now


@given(st.lists(st.tuples(st.sampled_from([FORBIDDEN, CONFLICT, overloaded(3), overloaded(40)]), st.floats(0, 1))))
def test_every_pause_is_at_least_half_a_step_and_what_the_server_requested(
    failures: list[tuple[errors.ApiError, float]],
) -> None:
    clock = Clock()
    rolls = iter([roll for _, roll in failures])
    retries: RetryGate[str] = RetryGate(clock=clock, first_seconds=1, cap_seconds=8, jitter=lambda: next(rolls))
    step = 1.0
    for error, _ in failures:
        retries.failed("a", error)
        at = retries.retry_at("a")
        pause = at - clock.now
        least, most = max(step / 2, errors.retry_after(error)), max(step, errors.retry_after(error))
        assert least - 1e-6 <= pause <= most + 1e-6
        clock.now, step = at, min(2 * step, 8.0)

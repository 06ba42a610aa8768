"""The time that one pass may spend on API requests."""

import pytest

from kube.budget import RequestBudget
from kube.errors import ApiError, Conflict, Unavailable
from tests.clock import Clock


def request(budget: RequestBudget, clock: Clock, seconds: float, error: ApiError | None = None) -> None:
    """One that takes so long and ends so."""
    with budget.request():
        clock.now += seconds
        if error is not None:
            raise error


def left_seconds(budget: RequestBudget) -> float:
    with budget.request() as timeouts:
        return timeouts.connect_seconds + timeouts.read_seconds


def never_answered(budget: RequestBudget, clock: Clock) -> float:
    """How long a request waits that uses all of its time-outs."""
    seconds = left_seconds(budget)
    with pytest.raises(Unavailable):
        request(budget, clock, seconds, Unavailable("no answer from the API server"))
    return seconds


@pytest.mark.parametrize("requests", [1, 2, 5])
def test_requests_without_an_answer_share_the_time_of_a_pass(requests: int) -> None:
    clock = Clock()
    budget = RequestBudget(seconds=12.0, shortest_seconds=0.5, clock=clock)

    waited = [never_answered(budget, clock) for _ in range(requests)]

    assert waited[0] == 12.0
    assert sum(waited) <= 12.0 + 0.5 * (requests - 1)


def test_a_refused_connection_uses_up_no_more_than_it_took() -> None:
    clock = Clock()
    budget = RequestBudget(seconds=12.0, clock=clock)

    with pytest.raises(Unavailable):
        request(budget, clock, 2.0, Unavailable("connection refused"))

    assert left_seconds(budget) == 10.0


@pytest.mark.parametrize("answer", [Conflict("changed", status=409), Unavailable("overloaded", status=503)])
def test_answers_cost_nothing_however_slow_or_unwelcome(answer: ApiError) -> None:
    clock = Clock()
    budget = RequestBudget(seconds=12.0, clock=clock)

    request(budget, clock, 8.0)
    with pytest.raises(type(answer)):
        request(budget, clock, 8.0, answer)

    assert left_seconds(budget) == 12.0


def test_the_next_pass_has_all_of_it_again() -> None:
    clock = Clock()
    budget = RequestBudget(seconds=12.0, clock=clock)
    never_answered(budget, clock)

    budget.renew()

    assert left_seconds(budget) == 12.0

"""The taint where writes are slow, fail or have no answer, and where the Node goes: no list leaves too early for it."""

import pytest

from nodeagent.advertise.taint import BOUND_SECONDS
from tests.clock import Clock
from tests.nodeagent.advertise.test_taint import A, Writer, guard, lists, observed, push

SHORTER = lists({A: 1}, {A: 2})
TWO, TAINTED = observed(a=2), observed(a=2, changing=True)


@pytest.mark.parametrize("write_seconds", [1.0, 4.0, 8.0])
def test_after_a_slow_answer_pods_are_waited_for_as_long_again(write_seconds: float) -> None:
    clock = Clock()
    found = guard(Writer(clock=clock, seconds=write_seconds), clock=clock)
    assert push(found, TWO, SHORTER)
    clock.now += write_seconds + 0.1
    assert push(found, TAINTED, SHORTER)
    clock.now += 0.25
    assert push(found, TAINTED, SHORTER) == ""


def test_a_pass_that_began_before_that_read_its_pods_too_early() -> None:
    clock = Clock()
    found = guard(Writer(clock=clock), clock=clock)
    assert push(found, TWO, SHORTER)
    found.begin_pass(watched=True)
    clock.now += 5.0
    assert found.before_push(TAINTED, SHORTER)
    assert found.due_seconds == 0.0
    assert push(found, TAINTED, SHORTER) == ""


def test_of_tries_that_failed_the_longest_counts_since_each_may_have_been_carried_out() -> None:
    clock = Clock()
    writer = Writer("no answer", clock, 8.0)
    found = guard(writer, clock=clock)
    assert push(found, TWO, SHORTER) == "no answer"
    writer.answers("no answer", seconds=0.0)
    assert push(found, TWO, SHORTER) == "no answer"
    clock.now += 8.1
    assert push(found, TAINTED, SHORTER), "the watch brought it"
    clock.now += 0.25
    assert push(found, TAINTED, SHORTER) == ""

    writer.answers("", seconds=0.0)
    for seconds in (8.25, 0.25):
        assert push(found, TWO, SHORTER)
        clock.now += seconds
        assert push(found, TAINTED, SHORTER) == "", "a quick answer ends that"


def test_a_taint_whose_removal_has_no_answer_is_asked_for_again() -> None:
    clock = Clock()
    writer = Writer("no answer", clock)
    found = guard(writer, clock=clock)
    clock.now += 30.0
    for _ in range(2):
        found.begin_pass(watched=True)
        assert found.after_push(TAINTED, lists({A: 2}), (), all_withdrawn=True) == "no answer"
    assert push(found, TAINTED, SHORTER) == "no answer"
    assert writer.done == [False, False, True]
    writer.answers("")
    assert push(found, TAINTED, SHORTER)
    clock.now += 0.25
    assert push(found, TAINTED, SHORTER) == ""
    assert writer.done == [False, False, True, True]


@pytest.mark.parametrize("meanwhile", ["the Node was deleted", "another device plugin served the node"])
def test_the_age_of_a_taint_is_not_that_of_one_before(meanwhile: str) -> None:
    clock = Clock()
    writer = Writer(clock=clock)
    found = guard(writer, clock=clock)
    push(found, TWO, SHORTER)
    found.after_push(TAINTED, lists({A: 2}), (), all_withdrawn=True)
    clock.now += BOUND_SECONDS
    if meanwhile == "the Node was deleted":
        found.after_push(None, lists({A: 2}), (), all_withdrawn=True)
    else:
        found.lift(TAINTED)
    writer.done.clear()
    push(found, TWO, SHORTER)
    found.after_push(TAINTED, lists({A: 2}), (), all_withdrawn=True)
    assert writer.done == [True]


def test_it_goes_after_its_bound_also_where_amounts_are_refused() -> None:
    clock = Clock()
    writer = Writer("denied", clock)
    found = guard(writer, write=True, clock=clock)
    for seconds, gone in ((0.0, False), (BOUND_SECONDS - 1.0, False), (1.0, True)):
        clock.now += seconds
        found.begin_pass(watched=True)
        assert found.after_push(TAINTED, lists({A: 1}), (), all_withdrawn=True) == "denied"
        assert (False in writer.done) == gone


def test_what_one_pass_waits_for_does_not_make_later_ones_due() -> None:
    found = guard(Writer())
    assert push(found, TWO, SHORTER)
    assert found.due_seconds is not None
    found.begin_pass(watched=True)
    assert found.due_seconds is None

"""A problem is logged once, and again only when its text changes or it comes back."""

import logging

import pytest

from kube.change_log import ChangeLog

LOG = logging.getLogger("tests.change_log")


def test_a_problem_is_logged_when_it_comes_changes_or_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    problems = ChangeLog(LOG)

    logged = [problems.warn(text) for text in ("", "a", "a", "b", "a", "", "a", "a")]

    assert logged == [False, True, False, True, True, False, True, False]
    assert [record.getMessage() for record in caplog.records] == ["a", "b", "a", "a"]


def test_each_object_has_problems_of_its_own() -> None:
    problems = ChangeLog(LOG)

    assert problems.is_new("no", "x")
    assert problems.is_new("no", "y")
    assert not problems.is_new("no", "x")
    assert (problems.last("x"), problems.last("z")) == ("no", "")
    problems.retain({"y"})
    assert problems.last("x") == ""
    assert not problems.is_new("no", "y")
    assert problems.is_new("no", "x")

"""The loop of the stand-ins, and what they write to the API on one."""

import threading
from collections.abc import Iterator

import pytest

from kube.errors import NotFound, Unavailable
from sandbox import writes
from sandbox.loop import Loop
from sandbox.writes import Writes
from tests.waiting import SECONDS, eventually


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("test")
    yield loop
    loop.stop()


def test_calls_run_when_they_are_due_in_the_order_they_came(loop: Loop) -> None:
    made: list[str] = []
    loop.after(0.1, lambda: made.append("late"))
    for name in ("a", "b", "c"):
        loop.post(lambda name=name: made.append(name))  # type: ignore[misc] # a lambda's default
    loop.start()
    eventually(lambda: len(made) == 4, "all were made")
    assert made == ["a", "b", "c", "late"]


def test_a_call_that_fails_does_not_end_the_loop(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    made = threading.Event()
    loop.post(lambda: 1 // 0)
    loop.post(made.set)
    loop.start()
    assert made.wait(SECONDS)
    assert "a step failed" in caplog.text


def test_a_stop_makes_what_is_due_where_it_is_given_time(loop: Loop) -> None:
    made: list[str] = []
    loop.start()
    loop.post(lambda: made.append("due"))
    loop.after(3600, lambda: made.append("later"))
    loop.stop(drain_seconds=20)
    assert made == ["due"]


def test_only_the_newest_write_of_a_key_is_made(loop: Loop) -> None:
    written, made = Writes(loop), list[str]()
    written.submit("a", lambda: made.append("old"))
    written.submit("b", lambda: made.append("other"))
    written.submit("a", lambda: made.append("new"))
    written.submit("c", lambda: made.append("forgotten"))
    written.forget("c")
    loop.start()
    eventually(lambda: "a" not in written and "b" not in written, "both are over")
    assert made == ["other", "new"]


def test_a_write_is_tried_again_until_the_server_is_there(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "RETRY_SECONDS", (0.01,))
    written, answers = Writes(loop), [Unavailable("away"), Unavailable("away")]

    def write() -> None:
        if answers:
            raise answers.pop()

    written.submit("a", write)
    loop.start()
    eventually(lambda: "a" not in written, "it is over")
    assert answers == []


@pytest.mark.parametrize("error", [NotFound("gone"), ValueError("a mistake of ours")])
def test_a_write_that_can_never_be_made_is_over(loop: Loop, error: Exception) -> None:
    written = Writes(loop)

    def write() -> None:
        raise error

    written.submit("a", write)
    loop.start()
    eventually(lambda: "a" not in written, "it is over")

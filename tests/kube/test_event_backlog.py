"""Which Event is written next, with a clock that only the test moves."""

import pytest

from kube.event_backlog import EventBacklog, EventContent, ObjectReference

QUIET = 10.0


def content(reason: str, about: str = "p", message: str = "m") -> EventContent:
    pod = ObjectReference(api_version="v1", kind="Pod", name=about, uid=f"uid-{about}")
    return EventContent(about=pod, type="Warning", reason=reason, message=message, series="")


class Story:
    """Emits at given times and writes whatever is due, with one line per write."""

    def __init__(self, size: int = 100) -> None:
        self.backlog = EventBacklog(quiet_seconds=QUIET, size=size, remembered=4 * size)
        self.written: list[str] = []
        self.now = 0.0

    def run(self, *steps: tuple[float, str]) -> list[str]:
        for at, reason in steps:
            self._write_until(at)
            assert self.backlog.add(content(reason), at)
            self._write_until(at)
        self._write_until(float("inf"))
        return self.written

    def _write_until(self, end: float) -> None:
        while (due_in := self.backlog.due_in(self.now)) is not None and self.now + due_in <= end:
            self.now += due_in
            series = self.backlog.take(self.now)
            self.written.append(f"{self.now:g} {series.content.reason} x{series.emitted}")
            series.emitted = 0
        self.now = max(self.now, min(end, 1e9))


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        pytest.param([(0, "A")], ["0 A x1"], id="once"),
        pytest.param([(0, "A"), (1, "A"), (2, "A")], ["0 A x1", "10 A x2"], id="repeats are written together, later"),
        pytest.param([(0, "A"), (11, "A")], ["0 A x1", "11 A x1"], id="a slow repeat is written at once"),
        pytest.param([(0, "A"), (1, "B"), (2, "A")], ["0 A x1", "1 B x1", "2 A x1"], id="a return is written at once"),
        pytest.param(
            [(0, "A"), (1, "A"), (2, "B")], ["0 A x1", "2 B x1"], id="a held repeat never follows another Event"
        ),
        pytest.param(
            [(0, "A"), (1, "A"), (2, "B"), (3, "A")],
            ["0 A x1", "2 B x1", "3 A x2"],
            id="a dropped repeat is still counted",
        ),
    ],
)
def test_what_is_written_and_when(steps: list[tuple[float, str]], written: list[str]) -> None:
    assert Story().run(*steps) == written


def test_queued_content_follows_what_was_emitted_between() -> None:
    backlog = EventBacklog(quiet_seconds=QUIET, size=10, remembered=40)
    for reason in ("A", "B", "A"):
        backlog.add(content(reason), 0.0)
    assert [backlog.take(0.0).content.reason for _ in range(2)] == ["B", "A"]
    assert backlog.due_in(0.0) is None


def test_the_newest_message_of_a_series_is_written() -> None:
    backlog = EventBacklog(quiet_seconds=QUIET, size=10, remembered=40)
    for message in ("first", "second"):
        backlog.add(content("A", message=message), 0.0)
    series = backlog.take(0.0)
    assert (series.content.message, series.emitted) == ("second", 2)


def test_a_full_backlog_takes_repeats_of_what_is_queued_and_nothing_else() -> None:
    backlog = EventBacklog(quiet_seconds=QUIET, size=1, remembered=4)
    assert backlog.add(content("A"), 0.0)
    assert backlog.add(content("A"), 0.0)
    assert not backlog.add(content("A", about="q"), 0.0)


def test_a_held_repeat_is_due_when_its_quiet_time_is_over() -> None:
    backlog = EventBacklog(quiet_seconds=QUIET, size=10, remembered=40)
    backlog.add(content("A"), 5.0)
    backlog.take(5.0)
    backlog.add(content("A"), 7.0)
    assert backlog.due_in(7.0) == 8.0
    assert backlog.due_in(20.0) == 0.0
    backlog.add(content("B"), 20.0)
    backlog.take(20.0)
    assert backlog.due_in(20.0) is None


def test_a_repeat_that_is_held_again_has_a_quiet_time_of_its_own() -> None:
    backlog = EventBacklog(quiet_seconds=QUIET, size=10, remembered=40)
    for at, reason in ((0.0, "A"), (2.0, "B"), (3.0, "A")):
        backlog.add(content(reason), at)
        backlog.take(at)
        backlog.add(content(reason), at + 0.5)  # held until another Event follows
    assert backlog.due_in(4.0) == 9.0


def test_objects_do_not_hold_back_each_other() -> None:
    backlog = EventBacklog(quiet_seconds=QUIET, size=10, remembered=40)
    for about in ("p", "q"):
        backlog.add(content("A", about=about), 0.0)
        backlog.take(0.0)
    backlog.add(content("A", about="p"), 1.0)
    backlog.add(content("B", about="q"), 1.0)
    assert backlog.take(1.0).content.about.name == "q"
    assert backlog.due_in(1.0) == 9.0

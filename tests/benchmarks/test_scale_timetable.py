"""Jobs on a timetable: when they run, that they never overlap, and that a failure ends none."""

import threading
import time
from itertools import pairwise

import pytest

from benchmarks.scale import timetable
from benchmarks.scale.timetable import Job, Timetable
from tests.waiting import SECONDS, eventually


@pytest.fixture
def table() -> Timetable:
    return Timetable(time.monotonic, workers=3)


def test_a_job_is_due_again_when_it_requests_it(table: Timetable) -> None:
    runs: list[float] = []

    def run() -> float | None:
        runs.append(time.monotonic())
        return 0.02 if len(runs) < 3 else None

    table.wake(Job(run))
    table.start()
    eventually(lambda: len(runs) == 3, "three runs")
    table.stop()
    assert runs[1] - runs[0] >= 0.02


def test_the_earlier_of_two_times_counts_once(table: Timetable) -> None:
    runs: list[int] = []
    job = Job(lambda: runs.append(1))
    table.wake(job, 600.0)
    table.wake(job, 0.0)
    table.start()
    eventually(lambda: runs == [1], "one run")
    done = threading.Event()
    table.once(done.set, 0.05)
    assert done.wait(SECONDS)
    table.stop()
    assert runs == [1]


def test_a_job_that_is_woken_while_it_runs_runs_once_more_and_never_twice_at_once(table: Timetable) -> None:
    at_once, most, runs = [0], [0], [0]

    def run() -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        runs[0] += 1
        if runs[0] == 1:
            for _ in range(3):
                table.wake(job)
            threading.Event().wait(0.05)
        at_once[0] -= 1

    job = Job(run)
    table.wake(job)
    table.start()
    eventually(lambda: runs[0] == 2, "two runs")
    table.stop()
    assert (most[0], runs[0]) == (1, 2)


def test_a_pause_lies_between_two_runs(table: Timetable) -> None:
    runs: list[float] = []

    def run() -> float:
        runs.append(time.monotonic())
        return 0.0

    table.wake(Job(run, pause_seconds=0.05))
    table.start()
    eventually(lambda: len(runs) >= 3, "three runs")
    table.stop()
    assert min(later - earlier for earlier, later in pairwise(runs)) >= 0.05


def test_a_failure_is_counted_and_tried_again(table: Timetable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "FAILED_SECONDS", 0.01)
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("once")

    table.wake(Job(run))
    table.start()
    eventually(lambda: len(runs) == 2, "two runs")
    table.stop()
    assert table.failures == 1

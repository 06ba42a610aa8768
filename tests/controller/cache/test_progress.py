"""Clocks of GPUs and heartbeats of agents, on a clock that only the test moves."""

from controller.api.plans import PlanReading
from controller.cache.heartbeats import Heartbeats
from controller.cache.progress import Outlook, Progress
from tests.builders.objects import gpu, item, plan, status
from tests.builders.views import plan_reading

ITEM = item(0, 3)


def reading(state: str, *, confirmed: bool = False, generation: int = 2, observed: int = 2) -> PlanReading:
    found = gpu(state=state, item=ITEM if confirmed else None)
    raw = plan(planned=[ITEM], generation=generation, status=status(found, observed=observed))
    return plan_reading(raw)


def judge(progress: Progress, read: PlanReading, now: float) -> Outlook:
    return progress.outlook(
        read.uid,
        read.gpus[0],
        generation=read.generation,
        observed_generation=read.observed_generation,
        now=now,
    )


def test_under_way_for_its_time_and_no_longer() -> None:
    progress = Progress(under_way_seconds=300)
    first = judge(progress, reading("Changing"), 10.0)
    assert (first.settled, first.under_way, first.holds_until) == (False, True, 310.0)
    assert judge(progress, reading("Advertising"), 309.0).under_way
    late = judge(progress, reading("Advertising"), 310.0)
    assert (late.settled, late.under_way) == (False, False)


def test_settling_ends_the_clock_and_leaving_again_starts_a_new_one() -> None:
    progress = Progress(under_way_seconds=300)
    judge(progress, reading("Changing"), 10.0)
    done = judge(progress, reading("Ready", confirmed=True), 200.0)
    assert (done.settled, done.under_way) == (True, False)
    assert judge(progress, reading("Changing"), 500.0).holds_until == 800.0


def test_a_new_item_starts_a_new_clock() -> None:
    progress = Progress(under_way_seconds=300)
    judge(progress, reading("Changing"), 10.0)
    other = plan_reading(plan(planned=[item(0, 4)], generation=3, status=status(gpu(state="Changing"), observed=2)))
    assert judge(progress, other, 200.0).holds_until == 500.0


def test_a_stop_ends_it_only_once_the_agent_has_read_the_item() -> None:
    progress = Progress(under_way_seconds=300)
    assert judge(progress, reading("Failed", generation=2, observed=1), 10.0).under_way
    assert not judge(progress, reading("Failed", generation=2, observed=2), 11.0).under_way


def test_the_generation_of_another_gpu_does_not_revive_a_stopped_one() -> None:
    progress = Progress(under_way_seconds=300)
    judge(progress, reading("Failed", generation=2, observed=2), 10.0)
    assert not judge(progress, reading("Failed", generation=3, observed=2), 11.0).under_way


def test_waiting_for_release_is_a_stop_but_no_failure() -> None:
    progress = Progress(under_way_seconds=300)
    found = judge(progress, reading("WaitingForRelease"), 10.0)
    assert (found.under_way, found.backing_off) == (False, False)


def test_failures_back_off_ever_longer() -> None:
    progress = Progress(under_way_seconds=300)
    assert judge(progress, reading("Failed"), 0.0).holds_until == 5.0
    assert judge(progress, reading("Failed"), 2.0).backing_off
    assert judge(progress, reading("Changing"), 3.0).backing_off
    assert judge(progress, reading("Failed"), 4.0).holds_until == 14.0
    assert not judge(progress, reading("Failed"), 14.0).backing_off


def test_a_gpu_that_fails_for_months_is_tried_every_ten_minutes() -> None:
    progress = Progress(under_way_seconds=300)
    for failure in range(2_000):
        judge(progress, reading("Changing"), 1000.0 * failure)
        assert judge(progress, reading("Failed"), 1000.0 * failure).backing_off
    assert judge(progress, reading("Failed"), 1_999_000.0).holds_until == 1_999_600.0


def test_success_after_all_ends_the_back_off() -> None:
    progress = Progress(under_way_seconds=300)
    judge(progress, reading("Failed"), 0.0)
    assert not judge(progress, reading("Ready", confirmed=True), 1.0).backing_off
    assert judge(progress, reading("Failed"), 2.0).holds_until == 7.0


def test_going_back_to_an_older_layout_does_not() -> None:
    progress = Progress(under_way_seconds=300)
    judge(progress, reading("Failed"), 0.0)
    former = item(0, 4)
    done = status(gpu(item=former), observed=3)
    back = plan_reading(plan(planned=[former], generation=3, status=done))
    assert judge(progress, back, 1.0).backing_off
    assert not judge(progress, back, 5.0).backing_off


def test_an_agent_is_alive_while_its_lease_changes() -> None:
    beats = Heartbeats(silent_seconds=60)
    beats.observe("n1", "t1", 0.0)
    assert beats.alive("n1", 59.0, known_silent=False)
    assert beats.holds_until("n1", 59.0) == 60.0
    assert not beats.alive("n1", 60.0, known_silent=False)
    beats.observe("n1", "t1", 70.0)
    assert not beats.alive("n1", 70.0, known_silent=False)
    beats.observe("n1", "t2", 80.0)
    assert beats.alive("n1", 80.0, known_silent=True)
    assert beats.silent_for("n1", 85.0) == 5.0


def test_a_lease_found_at_start_does_not_refute_that_its_agent_is_silent() -> None:
    beats = Heartbeats(silent_seconds=60)
    beats.observe("n1", "weeks ago", 0.0)
    assert beats.alive("n1", 1.0, known_silent=False)
    assert not beats.alive("n1", 1.0, known_silent=True)


def test_an_expected_agent_that_never_comes_ages_too() -> None:
    beats = Heartbeats(silent_seconds=60)
    beats.expect("n1", 10.0)
    assert not beats.alive("n1", 11.0, known_silent=False)
    assert beats.silent_for("n1", 100.0) == 90.0
    beats.observe("n1", "t1", 100.0)
    assert beats.alive("n1", 100.0, known_silent=False)
    assert not beats.alive("n1", 100.0, known_silent=True)
    beats.observe("n1", "t2", 110.0)
    assert beats.alive("n1", 110.0, known_silent=True)

"""How long something has been so, from pass to pass."""

from nodeagent.durations import Durations
from tests.clock import Clock


def test_ages_start_again_after_a_pass_without_the_key() -> None:
    clock = Clock()
    durations = Durations(clock)
    assert durations.seconds("a") == 0
    clock.now += 5
    assert durations.seconds("a") == 5
    durations.end_pass()
    durations.end_pass()
    clock.now += 5
    assert durations.seconds("a") == 0

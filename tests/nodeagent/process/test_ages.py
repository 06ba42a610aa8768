"""How long something has been so, from pass to pass."""

from nodeagent.ages import Ages
from tests.clock import Clock


def test_ages_start_again_after_a_pass_without_the_key() -> None:
    clock = Clock()
    ages = Ages(clock)
    assert ages.seconds("a") == 0
    clock.now += 5
    assert ages.seconds("a") == 5
    ages.end_pass()
    ages.end_pass()
    clock.now += 5
    assert ages.seconds("a") == 0

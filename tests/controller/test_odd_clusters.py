"""Odd pods that an API server takes end no pass, cost what they may, and take no place of an ordinary pod.

`python -m tests.controller.odd` plans ten thousand such clusters.
"""

from collections import Counter
from random import Random

import pytest

from tests.controller.odd import pods
from tests.controller.odd.clusters import case, run


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 25))
def test_ordinary_pods_are_placed_as_without_the_odd_ones(first: int) -> None:
    assert [problem for seed in range(first, first + 25) for problem in run(case(seed))[0]] == []


def test_every_kind_is_drawn_and_some_of_the_ordinary_pods_are_placed() -> None:
    cases = [case(seed) for seed in range(100)]
    drawn = Counter(pod.name for one in cases for pod in one.with_odd.pending)

    assert len(pods.KINDS) >= 17
    assert any(one.with_odd.pods for one in cases)
    assert any(plan.name == "strange" for one in cases for plan in one.with_odd.plans)
    assert drawn["odd-0"] == 100


def test_a_kind_of_odd_pods_is_drawn_the_same_for_a_seed() -> None:
    assert all(kind(Random(7), "p") == kind(Random(7), "p") for kind in pods.KINDS)
    assert case(3) == case(3)

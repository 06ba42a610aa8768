"""Controllers that die, are late and are refused at random: nothing is harmed, and nothing changes without news."""

import pytest

from tests.controller.chaos import Life
from tests.controller.cluster import ApiCluster
from tests.drawn import thorough

EVERYTHING = 3
"""The seed of a life in which all of it happens."""
HAPPENS = [
    *("bound", "changes meanwhile", "crashes", "drains", "early writes", "late watches", "quiet passes"),
    *("refused writes", "restarts"),
]


@pytest.mark.timeout(600)  # some seconds on a quiet machine
@pytest.mark.parametrize("seed", thorough(EVERYTHING, 6))
def test_nothing_is_harmed_and_nothing_changes_without_news(cluster: ApiCluster, seed: int) -> None:
    life = Life(cluster, seed)
    life.run()
    assert life.harmed == []
    if seed == EVERYTHING:
        assert [what for what in HAPPENS if not life.seen[what]] == []

"""More pods than fit: a pass after which nothing happens but its own changes only gains, and later ones do nothing."""

from collections import Counter

import pytest

from benchmarks.families import FAMILIES, case
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.planning import plan
from tests.controller.planner.world import applied
from tests.drawn import cells, points


def served(snapshot: Snapshot, result: PlanningResult) -> list[int]:
    """How many pods of each priority have a place, the highest first."""
    priority = {pod.uid: pod.priority for pod in snapshot.pending}
    found = Counter(priority[one.uid] for one in result.placed)
    return [found[level] for level in sorted(set(priority.values()), reverse=True)]


def where(result: PlanningResult) -> set[tuple[str, str]]:
    return {(one.uid, one.node) for one in result.placed}


@pytest.mark.parametrize(
    ("family", "more", "seed"),
    [
        *((*one, 3001) for one in points(cells(list(FAMILIES), [0.3, 0.6]), each=2)),
        *(pytest.param("all", 0.3, seed, marks=pytest.mark.thorough) for seed in range(3002, 3022)),
    ],
)
def test_a_second_pass_serves_more_from_the_top_or_changes_nothing_and_later_ones_change_nothing(
    family: str, more: float, seed: int
) -> None:
    """The second of `all` serves more for three of twenty seeds."""
    snapshot = case(FAMILIES[family], nodes=8, gpus=2, seed=seed, more=more).snapshot
    first = plan(snapshot)
    settled = applied(snapshot, first)
    second = plan(settled)
    gained = where(second) != where(first)

    assert len(first.placed) < len(snapshot.pending)
    assert gained or not second.node_changes
    assert not gained or served(snapshot, second) > served(snapshot, first)
    for _ in range(2):
        settled = applied(settled, second)
        later = plan(settled)
        assert where(later) == where(second)
        assert not later.node_changes

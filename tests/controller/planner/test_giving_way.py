"""Pods of lower levels give way to pods of upper ones that wait, and to no others, as few as possible."""

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.families import FAMILIES, case
from benchmarks.oracle import exact_levels
from controller.planner import strategy
from controller.planner.board.assignment import Assignment
from controller.planner.giving_way import give_way
from controller.planning import plan
from tests.controller.planner.checker import check
from tests.drawn import cells


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("cpu uneven, levels", 502),
        ("cpu uneven, levels", 503),
        ("memory uneven, levels", 501),
        ("memory uneven, levels", 503),
    ],
)
def test_lower_levels_have_nearly_all_that_upper_ones_leave(name: str, seed: int) -> None:
    """Placed one after the other, the lowest had 5 of 32, 14 of 60, 59 of 68 and 2 of 62 places."""
    made = case(FAMILIES[name], nodes=10, gpus=8, seed=seed, more=0.6)
    assert made.judged is not None
    possible = exact_levels(made.judged, seconds=20)
    assert possible is not None
    result = plan(made.snapshot)
    placed, priority = {one.uid for one in result.placed}, {one.uid: one.priority for one in made.snapshot.pending}
    highest_first = sorted(set(priority.values()), reverse=True)
    served = [sum(priority[uid] == each for uid in placed) for each in highest_first]

    check(made.snapshot, result)
    assert served[:-1] == list(possible[:-1])
    assert served[-1] >= 0.9 * possible[-1]


KINDS = ("cpu uneven, levels", "memory uneven, levels", "all", "spread, levels", "claims, levels")


@pytest.mark.parametrize(("name", "seed"), cells(KINDS, [61, 62, 63, 64]))
def test_no_pod_gives_way_to_one_of_its_own_level_or_below(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    gained = list[int]()

    def counting(board: Any, levels: Sequence[Sequence[Assignment]], *args: Any) -> int:
        def placed() -> list[set[int]]:
            return [{id(one) for one in level if one.placed} for level in levels]

        before = placed()
        more = give_way(board, levels, *args)
        for was, now in zip(before, placed(), strict=True):
            if now != was:
                assert now > was
                break
        assert more == sum(map(len, placed())) - sum(map(len, before))
        gained.append(more)
        return more

    monkeypatch.setattr(strategy, "give_way", counting)
    made = case(FAMILIES[name], nodes=5, gpus=8, seed=seed, more=0.6)

    check(made.snapshot, plan(made.snapshot))
    assert gained

"""More tries for pods that the first one leaves out: what they gain, and what they may take."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.families import FAMILIES, case
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.planner import search, strategy, tries
from controller.planning import plan
from tests.controller.planner.world import applied
from tests.drawn import cells, points, thorough


@pytest.mark.parametrize(
    ("family", "nodes", "gpus", "seed"),
    [
        ("daemon", 8, 2, 36),
        ("daemon", 8, 2, 52),
        ("all", 8, 2, 52),
        ("all", 4, 4, 59),
        *thorough(("all", 12, 4, 56), ("all", 12, 4, 58)),
        ("3 models", 8, 2, 2000),
        ("affinity", 8, 2, 2000),
    ],
)
def test_what_fits_with_all_pods_placed_is_placed_whole(family: str, nodes: int, gpus: int, seed: int) -> None:
    snapshot = case(FAMILIES[family], nodes=nodes, gpus=gpus, seed=seed).snapshot
    result = plan(snapshot)
    assert len(result.placed) == len(snapshot.pending)
    assert plan(snapshot) == result


@pytest.mark.parametrize("family", ["all", "affinity"])
def test_more_tries_serve_no_level_worse_and_take_no_more_than_their_work(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where three in ten can have no place: each try for them is in vain, and costs as much as the first one."""
    snapshot = case(FAMILIES[family], nodes=8, gpus=2, seed=3001, more=0.3).snapshot
    found = list[tuple[int, tuple[int, ...]]]()

    def counting(board: Any, levels: Any, rules: Any) -> None:
        tries.place_best(board, levels, rules)
        found.append((board.work, strategy.Found(levels, rules).served))

    monkeypatch.setattr(search, "place_best", counting)
    for most in (0, len(snapshot.pending), 2_000):
        monkeypatch.setattr(tries, "_WORK", most)
        plan(snapshot)
    (one, served), again, (work, best) = found
    assert again == (one, served), "a pass of as many pods as the work allows has one try"
    assert one < work <= 3 * one + 2_000
    assert best >= served


@pytest.mark.parametrize(
    ("family", "seed"), cells(["2 models", "5 models", "levels", "daemon", "all"], [3000, 3004, 3005])
)
def test_tries_in_vain_leave_no_trace(family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which phase found a place is reported as the first try had it."""
    snapshot = case(FAMILIES[family], nodes=8, gpus=2, seed=seed, more=0.3).snapshot
    more = plan(snapshot)
    monkeypatch.setattr(tries, "_WORK", 0)
    one = plan(snapshot)
    same = [(each.uid, each.node) for each in more.placed] == [(each.uid, each.node) for each in one.placed]
    assert more == one or not same


def _kept(snapshot: Snapshot, result: PlanningResult) -> Counter[int]:
    """Pods where they have a reservation, by their priority."""
    priority = {pod.uid: pod.priority for pod in snapshot.pending}
    return Counter(priority[one.uid] for one in result.placed if snapshot.reservations.get(one.uid) == one.node)


@pytest.mark.parametrize("seed", points(range(3000, 3006), each=2))
def test_more_tries_take_no_reservation_that_one_keeps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in five pods come when the others have theirs."""
    snapshot = case(FAMILIES["all"], nodes=8, gpus=2, seed=seed, more=0.3).snapshot
    first = replace(snapshot, pending=snapshot.pending[: len(snapshot.pending) * 3 // 5])
    later = replace(applied(first, plan(first)), pending=snapshot.pending)
    more = _kept(later, plan(later))
    monkeypatch.setattr(tries, "_WORK", 0)
    assert more >= _kept(later, plan(later))

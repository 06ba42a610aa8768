"""What no single pod pays for: looks at nodes and GPUs for places are counted, and end what only improves a plan."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.hostile import crowded_sizes, off_one_node, priorities
from controller.model.results import CutShort, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planner import effort, search
from controller.planner.board.board import Board
from controller.planner.board.pools import fillable
from controller.planner.effort import Effort
from controller.planner.placement import admission
from controller.planning import plan
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, mig, mps, pod, server
from tests.controller.planner.test_work import calls


def in_turns(pods: int) -> list[PodView]:
    """None needs less than another: the more CPU, the less memory."""
    return [pod(f"bad-{one:04}", "10gb", cpu=1_000 + 50 * one, memory_gib=1 + pods - one) for one in range(pods)]


HOSTILE: dict[str, Callable[[int], list[PodView]]] = {
    "sizes": crowded_sizes,
    "priorities": priorities,
    "off one node": lambda pods: off_one_node(pods, 8),
    "in turns": in_turns,
}


def hostile(kind: str, pods: int) -> Snapshot:
    """Nodes whose GPUs are all in unlike states, and an ordinary pod of higher priority."""
    shared = [
        server(f"mps-{one:02}", mps(gpu_model=H100, used_gb=[1 + one]), partitioning="mps", cpu=20_000 + one)
        for one in range(8)
    ]
    cut = [server(f"node-{one:05}", mig(gpu_model=H100), cpu=20_000 + one) for one in range(8)]
    good = [pod("good", "1g.10gb", namespace="good", priority=10_000)]
    return cluster(*shared, *cut, pending=[*HOSTILE[kind](pods), *good])


def planned(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> tuple[PlanningResult, Effort]:
    found: list[Effort] = []

    def kept(board: Board, *given: Any) -> None:
        found.append(board.effort)
        broken(board, *given)

    broken = search.take_off_broken
    with monkeypatch.context() as patched:
        patched.setattr(search, "take_off_broken", kept)
        result = plan(snapshot)
    return result, found[0]


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_pass_does_is_counted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of functions are no more than some per look and visit, and some hundreds per pod."""
    snapshot = hostile(kind, 60)
    _, found = planned(snapshot, monkeypatch)
    visits = found.most - found.free("none")

    assert calls(snapshot) <= 40 * (found.looks + visits + 100 * len(snapshot.pending))


@pytest.mark.parametrize("kind", ["sizes", "priorities"])
def test_once_its_looks_are_used_up_a_pass_places_what_it_can_and_improves_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hostile(kind, 60)
    whole, found = planned(snapshot, monkeypatch)
    monkeypatch.setattr(effort, "LOOKS", found.looks // 10)
    monkeypatch.setattr(admission, "LOOKS", found.looks // 10)
    result, less = planned(snapshot, monkeypatch)

    assert less.looks < 0.5 * found.looks
    assert whole.cut_short is None
    assert result.cut_short is CutShort.WORK
    assert result.remarks
    assert "used up its work" in result.remarks[0]
    assert ("good", "good") in {one.key for one in result.placed}
    assert len(result.placed) >= 0.6 * len(whole.placed)
    assert plan(snapshot) == result


@pytest.mark.parametrize("sizes", [(), (5,), (7, 10), (3, 512), (513,), (5, 10**12), (10**18, 60, 85)])
def test_what_sizes_can_fill_is_known_whatever_a_user_writes(sizes: tuple[int, ...]) -> None:
    """A request for more than any GPU has is as if it were not there, and costs no memory of its own size."""
    filled = [0] * 513
    for amount in range(1, 513):
        filled[amount] = max((filled[amount - size] + size for size in sizes if size <= amount), default=0)
    assert fillable(frozenset(sizes)) == tuple(filled)

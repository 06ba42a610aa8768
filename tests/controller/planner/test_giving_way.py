"""Pods of lower levels give way to pods of upper ones that wait, and to no others, as few as possible."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.families import FAMILIES, case
from benchmarks.oracle import exact_levels
from benchmarks.placed_rules import HOST
from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement
from controller.model.views import IMPROVE_STEPS, PlannerOptions
from controller.planner import giving_way, strategy
from controller.planner.board.assignment import Assignment
from controller.planner.effort import Effort
from controller.planner.giving_way import give_way
from controller.planner.search import search
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.checker import check
from tests.drawn import cells, thorough


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("cpu uneven, levels", 502),
        *thorough(("cpu uneven, levels", 503), ("memory uneven, levels", 501), ("memory uneven, levels", 503)),
    ],
)
def test_lower_levels_have_nearly_all_that_upper_ones_leave(name: str, seed: int) -> None:
    """Placed one after the other, the lowest had 5 of 32, 14 of 60, 59 of 68 and 2 of 62 places."""
    made = case(FAMILIES[name], nodes=10, gpus=8, seed=seed, more=0.6)
    assert made.judged is not None
    possible = exact_levels(made.judged, seconds=600)
    assert possible is not None
    result = plan(made.snapshot)
    placed, priority = {one.uid for one in result.placed}, {one.uid: one.priority for one in made.snapshot.pending}
    highest_first = sorted(set(priority.values()), reverse=True)
    served = [sum(priority[uid] == each for uid in placed) for each in highest_first]

    check(made.snapshot, result)
    assert served[:-1] == list(possible[:-1])
    assert served[-1] >= 0.9 * possible[-1]


KINDS = ("cpu uneven, levels", "memory uneven, levels", "all", "spread, levels", "claims, levels")
OUT_OF_STEPS = ("cpu uneven, levels", 72, 60)
"""After the last step the place of an upper pod was found, and none for the one that had it."""


@pytest.mark.parametrize(("name", "seed", "steps"), [*cells(KINDS, [61, 62, 63, 64], [IMPROVE_STEPS]), OUT_OF_STEPS])
def test_no_pod_gives_way_to_one_of_its_own_level_or_below(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int, steps: int
) -> None:
    counted, kept = list[bool](), list[bool]()  # judged below: a plan sets errors aside

    def counting(board: Any, levels: Sequence[Sequence[Assignment]], *args: Any) -> int:
        def placed() -> list[set[int]]:
            return [{id(one) for one in level if one.placed} for level in levels]

        before = placed()
        more = give_way(board, levels, *args)
        changed = next(((was, now) for was, now in zip(before, placed(), strict=True) if now != was), None)
        kept.append(changed is None or changed[1] > changed[0])
        counted.append(more == sum(map(len, placed())) - sum(map(len, before)))
        return more

    monkeypatch.setattr(strategy, "give_way", counting)
    made = case(FAMILIES[name], nodes=5, gpus=8, seed=seed, more=0.6)

    check(made.snapshot, plan(made.snapshot, PlannerOptions(improve_steps=steps)))
    assert counted
    assert all(counted)
    assert all(kept)


def test_of_two_nodes_that_one_is_taken_on_which_the_upper_levels_lose_less() -> None:
    """One pod of the middle level loses its place, not one of it and one of the lowest besides."""
    pending = [pod("top", "7g.40gb"), pod("alone", "3g.20gb"), pod("first", "3g.20gb"), pod("second", "3g.20gb")]
    found = search(cluster(server("node-1", mig()), server("node-2", mig()), pending=pending), PlannerOptions())
    of = {one.pod.name: one for one in found.assignments}
    levels = [[of["top"]], [of["alone"], of["first"]], [of["second"]]]
    found.board.clear(found.assignments)
    for rank, level in enumerate(levels):
        for one in level:
            one.rank = rank
    for name, node in (("first", 0), ("second", 0), ("alone", 1)):
        assert found.board.place_on(of[name], node)

    assert give_way(found.board, levels, lambda _: 1.0, 100) == 0
    assert {name: one.node for name, one in of.items()} == {"top": 1, "alone": -1, "first": 0, "second": 0}


def test_thousands_of_unlike_pods_that_wait_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """None needs less than another: once the steps are used up, no further one is looked at."""
    waiting = [pod(f"top-{n:03}", "7g.40gb", cpu=1000 + n, memory_gib=400 - n) for n in range(300)]
    one_server = cluster(server("node-1", mig()), pending=[*waiting, pod("low", "7g.40gb")])
    found = search(one_server, PlannerOptions())
    levels = [[one for one in found.assignments if (one.pod.name == "low") == low] for low in (False, True)]
    found.board.clear(found.assignments)
    compared = list[None]()
    monkeypatch.setattr(giving_way, "_needs_no_less", lambda *_: compared.append(None))

    assert give_way(found.board, levels, lambda _: 1.0, 100) == 0
    assert len(compared) < len(waiting)


def test_filters_are_asked_less_often_the_more_pods_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time they look where all of these are: 700 pods that keep off each other, of 10,000, took 20 seconds."""
    of_tops = LabelSelector(requirements=(Requirement(key="app", operator="In", values=("top",)),))
    apart = PodAffinityTerm(topology_key=HOST, selector=of_tops, namespaces=("team",))
    tops = [pod(f"top-{n:03}", "1g.5gb", priority=1) for n in range(20)]
    tops = [replace(one, labels=(("app", "top"),), anti_affinity=(apart,)) for one in tops]
    names = [f"node-{n}" for n in range(10)]
    servers = [server(name, mig(0), mig(1), mig(2), labels={HOST: name}) for name in names]
    low = [pod(f"low-{n:03}", "1g.5gb") for n in range(980)]
    found = search(cluster(*servers, pending=[*tops, *low]), PlannerOptions())
    levels = [[one for one in found.assignments if one.pod.priority == each] for each in (1, 0)]
    for rank, level in enumerate(levels):
        for one in level:
            one.rank = rank
    asked = list[None]()
    monkeypatch.setattr(found.constrained, "accepts", lambda *_: asked.append(None))

    assert give_way(found.board, levels, lambda _: 1.0, 1_000) == 0
    assert 0 < len(asked) <= 1_000 * 200 // len(found.assignments)


def test_in_a_pass_that_is_large_no_pod_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20,000 pods, its looks left none to change places: the lowest level had 474 in place of 1,920."""
    calls: list[object] = []

    def counting(*args: object) -> int:
        calls.append(args)
        return 0

    monkeypatch.setattr(Effort, "spare", lambda _: False)
    monkeypatch.setattr(strategy, "give_way", counting)
    plan(case(FAMILIES["cpu uneven, levels"], nodes=4, gpus=8, seed=1, more=0.6).snapshot)

    assert not calls

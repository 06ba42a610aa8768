"""One pass examines a limited number of unlike combinations of partitions; namespaces and passes take turns."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.model.demand import demand_of
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planner.board import board, several_partitions
from controller.planner.inventory import combinations
from controller.planner.inventory.combinations import without_turn
from controller.planning import plan
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, mps, pod, server
from tests.controller.planner.drain_scenes import ended, one_each, scene, where
from tests.controller.planner.world import applied

LIMIT = 10


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combinations, "_LEAST", LIMIT)
    monkeypatch.setattr(combinations, "LOOKS", 0)


def odd(number: int, namespace: str = "odd", **more: Any) -> PodView:
    """No other pod of its namespace requests the same."""
    return pod(f"odd-{number:03}", f"{41 + number % 39}gb", f"{1 + number // 39}gb", namespace=namespace, **more)


def two(name: str, **more: Any) -> PodView:
    return pod(name, ("10gb", 2), **more)


def left(*pods: PodView, first: Sequence[str] = ()) -> set[str]:
    return set(without_turn([demand_of(one) for one in pods], 1, first))


def crowd(*more: PodView, number: int = 60) -> Snapshot:
    node = server("node", *(mps(index, gpu_model=H100) for index in range(2)), partitioning="mps")
    return cluster(node, pending=[*(odd(one) for one in range(number)), *more])


def test_so_many_are_examined_and_pods_that_are_alike_together() -> None:
    pods = [odd(number % 11) for number in range(33)]
    assert left(*pods[:10], *pods[11:21]) == set()
    assert left(*pods) == {pods[10].uid}


def test_pods_of_one_partition_are_never_left_out() -> None:
    assert left(*(pod(f"p-{number}", f"{number}gb") for number in range(1, 50))) == set()


def test_no_namespace_takes_the_turn_of_another() -> None:
    later = two("later", namespace="good")
    assert later.uid not in left(*(odd(number) for number in range(100)), later)


def test_higher_priorities_come_first() -> None:
    pods = [odd(number) for number in range(20)]
    high = [odd(number, priority=1) for number in range(20, 20 + LIMIT)]
    assert left(*high, *pods) == {one.uid for one in pods}


def test_pods_without_a_turn_come_first_in_the_next_pass_until_each_had_one() -> None:
    pods = [odd(number) for number in range(35)]
    examined: set[str] = set()
    without: tuple[str, ...] = ()
    for _ in range(4):
        now = left(*pods, first=without)
        examined |= {one.uid for one in pods} - now
        without = tuple(uid for uid in dict.fromkeys((*without, *sorted(now))) if uid in now)
    assert examined == {one.uid for one in pods}


def test_a_plan_says_so_and_serves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    on_node = several_partitions.on_node

    def counting(*args: Any) -> Any:
        asked.append(args)
        return on_node(*args)

    monkeypatch.setattr(board, "on_node", counting)
    snapshot = crowd(two("good", namespace="good"))
    result = plan(snapshot)

    assert [one.key for one in result.placed if one.key[0] == "good"] == [("good", "good")]
    assert len(asked) < 5 * LIMIT
    waiting = {one.uid: one for one in result.unplaced}
    assert len(result.unexamined) == 61 - LIMIT
    assert all("used up its work" in waiting[uid].full for uid in result.unexamined)
    assert any("51 pods had no turn" in remark and "namespaces odd (51)." in remark for remark in result.remarks)
    again = plan(replace(snapshot, unexamined=result.unexamined))
    assert len(set(again.unexamined) - set(result.unexamined)) == LIMIT - 1


def test_a_pod_that_has_a_place_keeps_it_whatever_comes() -> None:
    """The pods before it had no turn in the pass that gave it its place; two passes without news change nothing."""
    snapshot = crowd(number=40)
    placed = {one.uid for one in plan(snapshot).placed}
    assert placed
    for _ in range(4):
        result = plan(snapshot)
        snapshot = replace(applied(snapshot, result), unexamined=result.unexamined)
        assert {one.uid for one in result.placed} >= placed
        placed = {one.uid for one in result.placed}
    assert [change for change in plan(snapshot).node_changes if change.changed] == []


def test_a_higher_priority_takes_no_turn_of_another_namespace() -> None:
    good = two("good", namespace="good")
    assert good.uid not in left(*(odd(number, priority=9) for number in range(30)), good)


def test_more_namespaces_than_there_are_turns_take_them_one_after_the_other() -> None:
    pods = [odd(number, namespace=f"team-{number:02}") for number in range(25)]
    examined: Counter[str] = Counter()
    without: tuple[str, ...] = ()
    for _ in range(5):
        now = left(*pods, first=without)
        examined.update({one.uid for one in pods} - now)
        without = tuple(uid for uid in dict.fromkeys((*without, *sorted(now))) if uid in now)
    assert len(examined) == 25


def test_a_gang_has_its_turn_as_a_whole() -> None:
    gang = [odd(number, gang="gang", gang_size=4) for number in (0, 20, 30, 40)]
    crowd = [odd(number) for number in range(1, 60) if number not in (20, 30, 40)]
    assert not left(*crowd[:4], *gang, *crowd[4:]) & {one.uid for one in gang}
    assert left(*crowd[:8], *gang, *crowd[8:]) >= {one.uid for one in gang}


def test_a_gang_that_needs_more_turns_than_a_pass_has_takes_none() -> None:
    gang = [odd(number, gang="gang", gang_size=11) for number in range(11)]
    good = two("good")
    assert left(*gang, good) == {one.uid for one in gang}


def test_a_pod_keeps_its_drain_and_gets_what_it_emptied_whatever_comes() -> None:
    large = pod("large", ("3g.20gb", 2), created=5)
    snapshot = scene(*one_each(2, 4), pending=[large])
    snapshot = replace(snapshot, aged=frozenset({large.uid}), drained_for=frozenset({large.uid}))
    first = plan(snapshot)
    snapshot = applied(snapshot, first)
    more = [pod(f"odd-{number}", ("7g.40gb", 2 + number), created=1) for number in range(2 * LIMIT)]
    snapshot = replace(snapshot, pending=(*snapshot.pending, *more))
    for _ in range(3):
        result = plan(snapshot)
        assert result.drained == first.drained != ()
        snapshot = replace(applied(snapshot, result), unexamined=result.unexamined)
    thief = pod("thief", "7g.40gb", created=50, namespace="other")
    after = ended(replace(snapshot, pending=(*snapshot.pending, thief)), "holder-1")
    assert where(plan(after)) == {"large": "node-1"}


@pytest.mark.parametrize(("size", "reported"), [(LIMIT + 2, True), (LIMIT, False)])
def test_a_gang_that_no_pass_examines_reads_the_limit(size: int, reported: bool) -> None:
    gang = [odd(number, gang="g", gang_size=size) for number in range(size)]
    messages = {one.message for one in plan(crowd(*gang, number=0)).unplaced}
    sentence = (
        f"The pods of group g request {size} unlike combinations of partitions, and a planning pass examines {LIMIT} "
        f"at most. Let them request {LIMIT} or fewer, or one partition each."
    )

    assert (messages == {sentence}) is reported

"""A pass ends: its work is counted, shared among namespaces, and the clock is the last resort."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.model.demand import Demand
from controller.model.reasons import UnplacedReason
from controller.model.results import CutShort, PlanningResult
from controller.model.scheduling import (
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Requirement,
    SchedulingContext,
)
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planner import effort
from controller.planner.effort import Effort
from controller.planner.inventory import node_groups
from controller.planner.placement.shares import GroupCapacity
from controller.planning import plan
from controller.simulator.filters import filter_node
from tests.controller.planner.builders import cluster, holder, mig, pod, replaced, server
from tests.controller.planner.world import applied
from tests.drawn import thorough

HOST = "kubernetes.io/hostname"


def away(operator: str, *values: str, key: str = "app", topology: str = HOST) -> PodAffinityTerm:
    selector = LabelSelector(requirements=(Requirement(key=key, operator=operator, values=values),))
    return PodAffinityTerm(topology_key=topology, selector=selector, namespace_selector=LabelSelector())


def hostile(number: int, namespace: str = "bad", priority: int = 0) -> PodView:
    """Unlike every other one, and compared with every pod of the cluster."""
    term = away("NotIn", f"v{number}", topology="none")
    name = f"{namespace}-{number:04}"
    return replaced(pod(name, "1g.5gb", namespace=namespace, priority=priority), anti_affinity=(term,))


def ordinary(number: int) -> PodView:
    one = pod(f"good-{number:02}", "1g.5gb", namespace="good")
    return replaced(one, labels=(("app", "good"),), anti_affinity=(away("In", "good"),))


def crowded(pending: list[PodView], bound: int = 300, nodes: int = 6) -> Snapshot:
    names = [f"node-{number}" for number in range(nodes)]
    servers = [server(name, mig(), mig(1), labels={HOST: name}, pods=10**6, cpu=10**9) for name in names]
    there = [
        replaced(holder(names[one % nodes], name=f"b{one:04}"), labels=(("app", f"x{one}"),)) for one in range(bound)
    ]
    found = cluster(*servers, pods=there, pending=pending)
    return replace(found, context=SchedulingContext(namespaces={"team": {}, "good": {}, "bad": {}}))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the work, so that small clusters use it up."""
    monkeypatch.setattr(effort, "WORK", 20_000)
    monkeypatch.setattr(Effort.__init__, "__defaults__", (20_000, effort.never))


@pytest.mark.parametrize("priority", [0, 100])
def test_no_namespace_takes_the_work_of_another(small: None, priority: int) -> None:
    good = [ordinary(number) for number in range(4)]
    result = plan(crowded([*(hostile(number, priority=priority) for number in range(200)), *good]))

    assert {placed.key for placed in result.placed if placed.key[0] == "good"} == {one.key for one in good}
    assert result.cut_short is CutShort.WORK
    (remark,) = result.remarks
    assert "used up its work" in remark
    assert "bad/bad-0" in remark
    examined = [one for one in result.unplaced if "used up its work" not in one.message]
    assert len(examined) < 100


def test_what_others_leave_is_used(small: None) -> None:
    few = plan(crowded([hostile(number) for number in range(20)]))
    shared = plan(crowded([*(hostile(number) for number in range(20)), *(ordinary(number) for number in range(4))]))

    assert len(few.placed) == 20
    assert len([one for one in shared.placed if one.key[0] == "bad"]) == 20
    assert shared.cut_short is None


def test_a_pod_that_means_too_many_others_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = tuple(away("NotIn", f"v{number}") for number in range(1_000))
    greedy = replaced(pod("greedy", "1g.5gb", namespace="bad", priority=5), anti_affinity=terms)
    good = [ordinary(number) for number in range(4)]
    result = plan(crowded([greedy, *good]))

    assert len(result.placed) == 4
    (missed,) = result.unplaced
    assert (missed.key, missed.reason) == (("bad", "greedy"), UnplacedReason.NOT_SERVED)
    assert missed.message.startswith("Its affinity terms or topology spread constraints would have to be compared")


def test_the_same_snapshot_has_the_same_plan_where_work_is_used_up(small: None) -> None:
    pending = [*(hostile(number) for number in range(60)), *(ordinary(number) for number in range(4))]

    assert plan(crowded(pending)) == plan(crowded(pending))


@pytest.mark.parametrize("kind", ["hostile", *thorough("choosy")])
def test_pods_for_which_no_work_was_left_are_tried_first_in_the_next_pass(small: None, kind: str) -> None:
    """However many they are, each has its turn within a few passes, though none of the others leaves."""
    one = hostile if kind == "hostile" else choosy
    snapshot = crowded([one(number) for number in range(60)])
    never_tried = {pod.uid for pod in snapshot.pending}
    passes = 0
    while never_tried and passes < 12:
        result = plan(snapshot)
        assert result == plan(snapshot)
        assert {missed.uid for missed in result.unplaced}.issuperset(result.unexamined)
        never_tried.intersection_update(result.unexamined)
        snapshot = replace(snapshot, unexamined=result.unexamined)
        passes += 1

    assert not never_tried
    assert passes > 1


@pytest.mark.parametrize("kind", ["hostile", *thorough("choosy")])
def test_a_pod_that_had_no_turn_costs_none_of_a_higher_level_its_turn(small: None, kind: str) -> None:
    one = hostile if kind == "hostile" else choosy
    high = [one(number, priority=9) for number in range(60)]
    low = [one(number) for number in range(60, 80)]
    snapshot = crowded([*high, *low])
    before = {one.uid for one in plan(snapshot).placed}
    assert 0 < len(before) < len(high)
    after = {one.uid for one in plan(replace(snapshot, unexamined=tuple(one.uid for one in low))).placed}

    assert before & {one.uid for one in high} <= after


@pytest.mark.parametrize("each", [10, 40])
def test_however_many_namespaces_wait_a_pass_places_pods_and_not_only_looks_at_them(small: None, each: int) -> None:
    """No index serves these pods. None of them had a place, in pass after pass: asking all took what was left."""
    pods = [hostile(number, namespace=f"team-{team}") for team in range(4) for number in range(each)]
    snapshot = crowded(pods)
    teams: dict[str, dict[str, str]] = {f"team-{team}": {} for team in range(4)}
    snapshot = replace(snapshot, context=SchedulingContext(namespaces=teams))
    served: set[str] = set()
    for _ in range(4):
        result = plan(snapshot)
        served |= {placed.key[0] for placed in result.placed}
        snapshot = replace(snapshot, unexamined=result.unexamined)
        assert result.placed

    assert served == teams.keys()


@pytest.mark.parametrize("terms", [400, 2_000])
def test_to_wait_is_no_remedy_for_pods_that_no_pass_would_examine_however_many_namespaces_have_one(terms: int) -> None:
    """What their terms would have to be compared with is known before it is: no share is spent on that."""
    names = [f"team-{number}" for number in range(25)]
    odd = tuple(away("NotIn", f"v{number}") for number in range(terms))
    pods = [replaced(pod(name, "1g.5gb", namespace=name), anti_affinity=odd) for name in names]
    context = SchedulingContext(namespaces={name: {} for name in ("team", *names)})
    result = plan(replace(crowded(pods, bound=600), context=context))

    assert len(result.unplaced) == 25
    assert {one.reason for one in result.unplaced} == {UnplacedReason.NOT_SERVED}
    assert all("Use fewer terms" in one.message for one in result.unplaced)
    assert not result.cut_short


def choosy(number: int, namespace: str = "bad", priority: int = 0, *, terms: int = 400) -> PodView:
    """Unlike every other one by its node affinity, of which every term is tried on each node."""
    absent = [
        NodeSelectorTerm(labels=(Requirement(key=f"no-{number}-{one}", operator="Exists"),)) for one in range(terms)
    ]
    here = NodeSelectorTerm(labels=(Requirement(key=HOST, operator="Exists"),))
    one = pod(f"{namespace}-{number:04}", "1g.5gb", namespace=namespace, priority=priority)
    return replaced(one, node_affinity=(*absent, here))


def test_node_affinity_is_paid_for_and_takes_nothing_of_other_namespaces(small: None) -> None:
    good = [choosy(number, "good", terms=20) for number in range(4)]
    result = plan(crowded([*(choosy(number) for number in range(100)), *good]))

    assert {placed.key for placed in result.placed if placed.key[0] == "good"} == {one.key for one in good}
    assert result.cut_short is CutShort.WORK
    assert "bad/bad-0" in result.remarks[0]
    missed = {one.message.partition(".")[0] for one in result.unplaced if one.key[0] == "bad"}
    assert "The planning pass used up its work or its time before it examined this pod on every node" in missed


def test_a_pod_that_has_a_place_keeps_it_though_others_had_no_turn_in_the_pass_before(small: None) -> None:
    snapshot = crowded([choosy(number) for number in range(100)])
    placed: set[str] = set()
    for _ in range(3):
        result = plan(snapshot)
        assert placed <= {one.uid for one in result.placed} != set()
        placed = {one.uid for one in result.placed}
        snapshot = replace(applied(snapshot, result), unexamined=result.unexamined)


def test_no_namespace_decides_whether_the_pods_of_others_that_are_alike_are_examined(small: None) -> None:
    """Its own pod of the kind came first, and after more kinds than are examined in any case."""
    costly = [choosy(number, priority=9) for number in range(100)]
    simple = [pod(f"bad-s{number:02}", "1g.5gb", namespace="bad", tolerates=[f"t{number}"]) for number in range(20)]
    alike = pod("bad-z", "1g.5gb", namespace="bad")
    good = [pod(f"good-{number}", "1g.5gb", namespace="good", created=1) for number in range(4)]
    result = plan(crowded([*costly, *simple, alike, *good]))

    assert {one.key for one in good} <= {placed.key for placed in result.placed}


def test_very_many_namespaces_with_rules_of_their_own_leave_work_for_other_pods(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_groups, "_LOOKS", 5_000, raising=False)
    names = [f"n{number:02}" for number in range(40)]
    own = [pod(f"{name}-{number}", "1g.5gb", namespace=name) for name in names for number in range(20)]
    own = [replaced(one, node_affinity=(unlike(one.name),)) for one in own]
    good = [ordinary(number) for number in range(4)]
    snapshot = crowded([*own, *good], bound=60, nodes=40)
    snapshot = replace(snapshot, context=SchedulingContext(namespaces={name: {} for name in ("team", "good", *names)}))
    placed = {one.uid for one in plan(snapshot).placed}

    assert {one.uid for one in good} <= placed
    assert {f"uid-{name}-0" for name in names} <= placed


def unlike(value: str) -> NodeSelectorTerm:
    """It keeps a pod off no node, and makes all nodes unlike."""
    return NodeSelectorTerm(labels=(Requirement(key=HOST, operator="NotIn", values=(value,)),))


def keeping_off_one_node_each(pods: int, nodes: int) -> Snapshot:
    """Every node is a group of its own, and each of these may use all groups but one."""
    bad = [pod(f"bad-{number:03}", "1g.5gb", namespace="bad") for number in range(pods)]
    bad = [replaced(one, node_affinity=(unlike(f"node-{at % nodes}"),)) for at, one in enumerate(bad)]
    return crowded([*bad, *(ordinary(number) for number in range(4))], bound=0, nodes=nodes)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each question whether a group serves a pod."""
    asked: list[int] = []
    serves = GroupCapacity.serves

    def counting(capacity: GroupCapacity, demand: Demand) -> bool:
        asked.append(id(capacity))
        return serves(capacity, demand)

    monkeypatch.setattr(GroupCapacity, "serves", counting)
    return asked


def test_pods_that_each_may_use_almost_every_group_are_paid_for_twice(small: None, divided: list[int]) -> None:
    """To hold them against nodes, and to divide them among those: of 20,000 half is left for what comes after."""
    result = plan(keeping_off_one_node_each(pods=150, nodes=100))

    assert {f"uid-good-{number:02}" for number in range(4)} <= {one.uid for one in result.placed}
    assert result.cut_short is CutShort.WORK
    assert 0 < len(divided) <= 8_000


def test_once_the_time_is_over_pods_are_divided_without_a_look_at_every_group(divided: list[int]) -> None:
    result = late(keeping_off_one_node_each(pods=15, nodes=30), 0)

    assert len(result.placed) >= 15
    assert divided == []


def test_once_the_time_is_over_filters_are_asked_for_the_first_kinds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what other nodes they may use, nor why they wait, is found out."""
    asked: set[str] = set()

    def counting(one: PodView, *given: Any, **more: Any) -> Any:
        asked.add(one.name)
        return filter_node(one, *given, **more)

    monkeypatch.setattr(node_groups, "filter_node", counting)
    plain, nowhere = pod("plain", "1g.5gb"), pod("nowhere", "1g.5gb", selector={"zone": "none"})
    result = late(crowded([*(choosy(number) for number in range(9)), plain, nowhere], bound=0, nodes=10), 0)

    assert [one.uid for one in result.placed] == ["uid-plain"]
    assert len(result.unplaced) == 10
    assert asked == {"plain"}


@pytest.mark.parametrize("kind", ["hostile", *thorough("choosy")])
def test_a_pod_that_has_a_place_keeps_it_whatever_others_come(small: None, kind: str) -> None:
    """Of a higher priority, and in namespaces that share the work with its own: there is room for all."""
    one = hostile if kind == "hostile" else choosy
    low = [one(number) for number in range(8)]
    snapshot = crowded(low)
    first = plan(snapshot)
    placed = {found.uid for found in first.placed}
    assert placed
    high = [one(number, f"bad{number % 3}" if number % 2 else "bad", priority=9) for number in range(100, 160)]
    snapshot = replace(applied(snapshot, first), unexamined=first.unexamined, pending=(*low, *high))
    for _ in range(3):
        result = plan(snapshot)
        assert placed <= {found.uid for found in result.placed}
        placed = {found.uid for found in result.placed}
        snapshot = replace(applied(snapshot, result), unexamined=result.unexamined)


def test_pods_that_have_their_places_leave_the_work_of_their_namespaces_to_others(small: None) -> None:
    """This one fits on the last node alone, and no share of one of so many namespaces would find that out."""
    names = [f"n{number:02}" for number in range(30)]
    having = [replaced(ordinary(number), namespace=name) for number, name in enumerate(names)]
    snapshot = crowded(having, bound=60, nodes=60)
    snapshot = replace(snapshot, context=SchedulingContext(namespaces={name: {} for name in ("team", "good", *names)}))
    first = plan(snapshot)
    assert len(first.placed) == 30
    near = [replaced(one, labels=(("app", "near"),)) if one.node != "node-59" else one for one in snapshot.pods]
    picky = replaced(pod("picky", "1g.5gb", namespace="good"), anti_affinity=(away("In", "near"),))
    snapshot = replace(applied(snapshot, first), pods=tuple(near), pending=(*having, picky))
    result = plan(snapshot)

    assert {one.uid: one.node for one in result.placed}["uid-picky"] == "node-59"


@pytest.mark.parametrize("number", [90, *thorough(130)])
def test_places_that_are_kept_take_no_share_of_a_namespace_that_comes_later(small: None, number: int) -> None:
    """While it was alone, the first namespace had all work, in each pass for further pods."""
    snapshot = crowded([hostile(one) for one in range(number)], bound=60, nodes=30)
    for _ in range(4):
        result = plan(snapshot)
        snapshot = replace(applied(snapshot, result), unexamined=result.unexamined)
    kept = {one.uid for one in result.placed}
    good = [ordinary(one) for one in range(6)]
    snapshot = replace(snapshot, pending=(*snapshot.pending, *good))
    for _ in range(2):
        result = plan(snapshot)
        assert kept | {one.uid for one in good} <= {one.uid for one in result.placed}
        snapshot = replace(applied(snapshot, result), unexamined=result.unexamined)


def passes_until_all_are_placed(snapshot: Snapshot, most: int) -> int:
    """Each pass knows who had no turn in the pass before, and nothing else of it."""
    missing = {one.uid for one in snapshot.pending}
    for number in range(1, most + 1):
        result = plan(snapshot)
        missing -= {one.uid for one in result.placed}
        if not missing:
            return number
        snapshot = replace(snapshot, unexamined=result.unexamined)
    raise AssertionError(f"{len(missing)} pods had no place in any of {most} passes")


def test_pods_of_which_none_is_paid_for_by_a_share_have_their_turns_one_after_the_other(small: None) -> None:
    """A share is 500, and each of them costs 11 on each of 100 nodes."""
    names = [f"ns-{number:02}" for number in range(20)]
    pending = [choosy(number, name, terms=80) for number, name in enumerate(names)]

    assert passes_until_all_are_placed(crowded(pending, bound=0, nodes=100), 4) > 1


def test_a_pod_that_no_pass_can_examine_does_not_read_that_it_should_wait(small: None) -> None:
    found = plan(crowded([choosy(0, terms=1_600)], bound=0, nodes=100)).unplaced

    assert [one.message.partition(",")[0] for one in found] == [
        "Its node affinity has too many terms for so many nodes"
    ]


@pytest.mark.parametrize(("priority", "bad"), [(0, 0), *thorough((0, 150), (9, 0), (9, 150))])
def test_pods_whose_search_takes_more_than_a_share_find_their_places_within_some_passes(
    small: None, bad: int, priority: int
) -> None:
    """The last nodes alone accept them: a share is less than 20 of 40 nodes, and others come first in each pass."""
    names = [f"n{number:02}" for number in range(25)]
    picky = [
        replaced(pod(f"p-{name}", "1g.5gb", namespace=name), anti_affinity=(away("In", "near"),)) for name in names
    ]
    snapshot = crowded(picky, bound=120, nodes=60)
    near = [
        replaced(one, labels=(("app", "near"),)) for one in snapshot.pods if int(one.node.removeprefix("node-")) < 40
    ]
    hostiles = tuple(hostile(number, priority=priority) for number in range(bad))
    context = SchedulingContext(namespaces={name: {} for name in ("team", "bad", *names)})
    snapshot = replace(snapshot, context=context, pods=tuple(near))
    missing = {one.uid for one in picky}
    for _ in range(12):
        result = plan(replace(snapshot, pending=(*hostiles, *picky)))
        missing -= {one.uid for one in result.placed}
        snapshot = replace(snapshot, unexamined=result.unexamined)

    assert not missing


def test_plain_pods_are_examined_although_all_work_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Effort.__init__, "__defaults__", (0, effort.never))
    plain = [pod(f"plain-{number}", "1g.5gb") for number in range(4)]
    only = pod("only", "1g.5gb", selector={HOST: "node-2"})

    assert len(plan(crowded([*plain, only])).placed) == 5


def test_terms_that_a_label_tells_apart_cost_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(terms: int) -> PodView:
        hosts = [Requirement(key=HOST, operator="In", values=(f"x{one}",)) for one in range(terms)]
        return replaced(pod("p", "1g.5gb"), node_affinity=tuple(NodeSelectorTerm(labels=(one,)) for one in hosts))

    few, many = spent(crowded([named(4)]), monkeypatch), spent(crowded([named(4_000)]), monkeypatch)

    assert 0 < many <= few < spent(crowded([choosy(1)]), monkeypatch)


def spent(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> int:
    found = []
    kept: Callable[[Effort, PodView, int], None] = Effort.spend

    def spend(self: Effort, one: PodView, work: int) -> None:
        found.append(work)
        kept(self, one, work)

    with monkeypatch.context() as patched:
        patched.setattr(Effort, "spend", spend)
        plan(snapshot)
    return sum(found)


def test_four_times_the_bound_pods_are_no_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [
        replaced(
            pod(f"p{number}", "1g.5gb"),
            labels=(("own", str(number)),),
            anti_affinity=(away("In", str(number), key="own"),),
        )
        for number in range(60)
    ]
    few, many = spent(crowded(own, 250), monkeypatch), spent(crowded(own, 1_000), monkeypatch)

    assert 0 < many <= 1.5 * few


def late(snapshot: Snapshot, asked: int) -> PlanningResult:
    """The time is over once it was asked for so often."""
    left = [asked]

    def out_of_time() -> bool:
        left[0] -= 1
        return left[0] < 0

    return plan(snapshot, out_of_time=out_of_time)


@pytest.mark.parametrize("asked", [0, 1, 5, 20])
def test_when_the_time_is_over_what_is_placed_is_the_plan(asked: int) -> None:
    plain = [pod(f"plain-{number}", "2g.10gb", namespace="good") for number in range(4)]
    result = late(crowded([*plain, *(ordinary(number) for number in range(4))]), asked)

    assert {one.key for one in plain} <= {placed.key for placed in result.placed}
    assert result.cut_short is CutShort.TIME
    assert "had no time left" in result.remarks[0]
    assert len(result.placed) + len(result.unplaced) == 8


def test_where_a_pod_reads_that_the_log_has_more_the_log_has_more() -> None:
    """Also where every pod had its turn, and no time was left to find out why some wait."""
    servers = [server(f"node-{number}", mig(used=[("7g.40gb", 0)])) for number in range(3)]
    held = [holder(f"node-{number}", "7g.40gb", name=f"holder-{number}") for number in range(3)]
    waiting = [pod(f"pod-{number}", "1g.5gb", cpu=1000 + number) for number in range(4)]
    results = [late(cluster(*servers, pods=held, pending=waiting), asked) for asked in range(20)]

    reading = [any("controller's log" in one.message for one in result.unplaced) for result in results]
    assert (reading[0], reading[-1]) == (True, False)
    assert reading == [bool(result.remarks) for result in results] == [bool(result.cut_short) for result in results]


def share(**waiting: int) -> Effort:
    found = Effort(100)
    found.begin(waiting)
    return found


def take(found: Effort, namespace: str) -> int:
    """How much a namespace gets, one by one."""
    taken = 0
    while found.may(namespace):
        found.spend(pod("p", namespace=namespace), 1)
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("waiting", "done", "expected"),
    [
        ({"a": 9, "b": 1}, [], {"a": 50, "b": 50}),
        ({"a": 9, "b": 1}, ["b"], {"a": 100, "b": 0}),
        ({"a": 1, "b": 1, "c": 2}, ["c"], {"a": 34, "b": 33, "c": 33}),
        ({"a": 1}, [], {"a": 100}),
    ],
)
def test_shares(waiting: dict[str, int], done: list[str], expected: dict[str, Any]) -> None:
    found = share(**waiting)
    for namespace in done:
        found.done(namespace)

    assert {namespace: take(found, namespace) for namespace in expected} == expected
    assert found.cut_short is CutShort.WORK


def test_what_is_kept_for_later_is_there_later() -> None:
    found = Effort(100)
    found.begin({"a": 1}, half=True)
    assert take(found, "a") == 50
    found.begin({"a": 1})
    assert take(found, "a") == 50

"""A pod that has waited long gets a GPU drained: holders run on, no new pod comes, and then it is cut for the pod."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.reasons import UnplacedReason
from controller.model.results import Drained, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import Drain, GpuView, NodeView, PlannerOptions, PlanView, PodView
from controller.planning import plan
from crds.v1alpha1.names import Mode
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server
from tests.controller.planner.checker import check
from tests.controller.planner.world import applied
from tests.drawn import examples

LARGE = pod("large", "7g.40gb", created=5)
SMALL = pod("small", "1g.5gb", created=9)
Node = tuple[NodeView, PlanView]


def held(count: int, index: int = 0, *, profile: str = "1g.5gb", by: str = "team/holder") -> GpuView:
    return mig(index, used=[(profile, start) for start in range(count)], holder=by)


def scene(*nodes: Node, pending: list[PodView], priority: int = 0) -> Snapshot:
    """With a bound pod for each holder that a status names; it came after those that wait."""
    parts = [(view.name, part) for _, view in nodes for gpu in view.gpus for part in gpu.used if part.pod]
    count = Counter((name, part.pod.removeprefix("team/"), part.resource) for name, part in parts)
    bound = [holder(node, (resource, number), name=name) for (node, name, resource), number in count.items()]
    later = [replace(one, created=20, priority=priority) for one in bound]
    return cluster(*nodes, pods=later, pending=pending)


def one_each(*holders: int) -> list[Node]:
    """Nodes with one GPU each, of which so many slices are held."""
    return [server(f"node-{n}", held(count, by=f"team/holder-{n}")) for n, count in enumerate(holders, 1)]


def planned(snapshot: Snapshot, *waiting: PodView, options: PlannerOptions | None = None) -> PlanningResult:
    uids = frozenset(one.uid for one in waiting)
    snapshot = replace(snapshot, aged=uids, drained_for=uids)
    result = plan(snapshot, options)
    check(snapshot, result)
    return result


def following(snapshot: Snapshot, result: PlanningResult) -> Snapshot:
    """The plans as they were written."""
    return applied(snapshot, result)


def where(result: PlanningResult) -> dict[str, str]:
    return {one.key[1]: one.node for one in result.placed}


def drained(result: PlanningResult) -> dict[str, tuple[str, int]]:
    return {one.key[1]: (one.node, one.gpu) for one in result.drained}


def message(result: PlanningResult, name: str) -> tuple[UnplacedReason, str]:
    (found,) = [(one.reason, one.full) for one in result.unplaced if one.key[1] == name]
    return found


def ended(snapshot: Snapshot, name: str) -> Snapshot:
    """This holder has ended."""

    def free(found: PlanView) -> PlanView:
        gpus = [
            replace(
                gpu,
                partitions=tuple(
                    replace(part, state="Free", pod="") if part.pod == f"team/{name}" else part
                    for part in gpu.partitions
                ),
            )
            for gpu in found.gpus
        ]
        return replace(found, gpus=tuple(gpus))

    pods = tuple(one for one in snapshot.pods if one.name != name)
    return replace(snapshot, pods=pods, plans=tuple(map(free, snapshot.plans)))


def test_the_plan_says_what_is_drained_and_for_whom() -> None:
    snapshot = scene(*one_each(7, 1, 2), pending=[LARGE])
    result = planned(snapshot, LARGE)

    (change,) = result.node_changes
    (item,) = change.gpus
    (view,) = [found for found in snapshot.plans if found.name == "node-2"]
    assert (change.node, item.desired) == ("node-2", view.gpus[0].desired), "nothing is cut"
    ids = tuple(part.id for part in view.gpus[0].partitions)
    assert item.drain == Drain(uid=LARGE.uid, pod=LARGE.key, partitions=ids)
    assert result.drained == (
        Drained(
            uid=LARGE.uid,
            key=LARGE.key,
            node="node-2",
            gpu=0,
            partitions=ids,
            holders=("team/holder-2",),
            created=(20,),
        ),
    )
    assert message(result, "large") == (
        UnplacedReason.WAITS_FOR_RELEASE,
        "GPU 0 on node node-2 is drained for this pod, since it has waited long: no other pod gets what is in its way. "
        "The pod starts when those that hold one have finished; or add a GPU node. "
        "There is room for 1 nvidia.com/mig-7g.40gb once team/holder-2 has finished.",
    )


def test_a_second_pass_without_news_changes_nothing() -> None:
    snapshot = scene(*one_each(7, 1, 2), pending=[LARGE])
    first = planned(snapshot, LARGE)
    second = planned(following(snapshot, first), LARGE)

    assert second.node_changes == ()
    assert second.drained == first.drained


def test_no_other_pod_is_planned_there_and_it_says_why() -> None:
    snapshot = scene(*one_each(1), pending=[LARGE])
    snapshot = replace(following(snapshot, planned(snapshot, LARGE)), pending=(LARGE, SMALL))
    result = planned(snapshot, LARGE)

    assert where(result) == {}
    assert message(result, "small") == (
        UnplacedReason.NO_CAPACITY,
        "GPU 0 on node node-1 is drained for a pod that has waited long. Wait, or add a GPU node.",
    )


def test_what_a_holder_has_released_goes_to_no_other_pod() -> None:
    node = server("node-1", mig(used=[("1g.5gb", 0)], holder="team/a"), mig(1, used=[("1g.5gb", s) for s in range(7)]))
    both = replace(
        node[1].gpus[0],
        partitions=(*node[1].gpus[0].partitions, *mig(used=[("1g.5gb", 1)], holder="team/b").partitions),
        desired=mig(idle=[("1g.5gb", 0), ("1g.5gb", 1)]).desired,
    )
    view = replace(node[1], gpus=(both, node[1].gpus[1]), planned=())
    view = replace(view, planned=server("node-1", *view.gpus)[1].planned)
    snapshot = scene((node[0], view), pending=[LARGE])
    snapshot = ended(following(snapshot, planned(snapshot, LARGE)), "a")
    snapshot = replace(snapshot, pending=(LARGE, SMALL))

    assert where(planned(snapshot, LARGE)) == {}
    result = planned(ended(snapshot, "b"), LARGE)
    assert where(result) == {"large": "node-1"}
    assert result.drained == ()
    assert all(item.drain is None for change in result.node_changes for item in change.gpus)


@pytest.mark.parametrize("over", ["gone", "resting", "placed elsewhere", "switched off", "pinned"])
def test_it_ends_when_its_reason_ends(over: str) -> None:
    snapshot = scene(*one_each(1, 7), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    options = PlannerOptions()
    if over == "gone":
        snapshot = replace(snapshot, pending=(SMALL,))
    elif over == "resting":
        snapshot = replace(snapshot, resting=frozenset({LARGE.uid}))
    elif over == "placed elsewhere":
        third = server("node-3", mig())
        snapshot = replace(snapshot, nodes=(*snapshot.nodes, third[0]), plans=(*snapshot.plans, third[1]))
    elif over == "switched off":
        options = PlannerOptions(drains=0)
    else:
        view = snapshot.plans[0]
        pinned = replace(view, gpus=(replace(view.gpus[0], pinned=True),))
        snapshot = replace(snapshot, plans=(pinned, *snapshot.plans[1:]))
    result = planned(snapshot, LARGE, options=options)

    assert drained(result).get("large", ("", 0))[0] != "node-1"
    (change,) = [one for one in result.node_changes if one.node == "node-1"]
    assert all(item.drain is None for item in change.gpus)


def test_nothing_is_drained_where_people_decide() -> None:
    (node, view) = server("node-1", held(1))
    manual, paused = replace(view, mode=Mode.MANUAL), replace(view, paused=True)
    pinned = replace(view, gpus=tuple(replace(gpu, pinned=True) for gpu in view.gpus))
    for kept in (manual, paused, pinned):
        assert planned(scene((node, kept), pending=[LARGE]), LARGE).drained == ()


def test_a_drain_in_a_plan_that_people_hold_keeps_nothing_from_anyone() -> None:
    """Its agent drains nothing either."""
    (node, view) = server("node-1", mig(used=[("1g.5gb", 0)], idle=[("1g.5gb", 1)]))
    snapshot = following(scene((node, view), pending=[LARGE]), planned(scene((node, view), pending=[LARGE]), LARGE))
    assert snapshot.plans[0].planned[0].drain is not None
    pinned = replace(snapshot.plans[0].gpus[0], pinned=True)
    for held_by in ({"mode": Mode.MANUAL}, {"paused": True}, {"gpus": (pinned,)}):
        plans = (replace(snapshot.plans[0], **held_by),)
        result = planned(replace(snapshot, plans=plans, pending=(LARGE, SMALL)), LARGE)
        assert where(result) == {"small": "node-1"}


def test_a_device_of_the_profile_that_the_pod_wants_is_never_drained() -> None:
    """The kubelet counts: it would take the slot of the instance that is made for the pod."""
    whole = [server("node-1", mig(used=[("7g.40gb", 0)], holder="team/whole"))]
    assert planned(scene(*whole, *one_each()[0:0], pending=[LARGE]), LARGE).drained == ()
    small = server("node-2", held(7, by="team/small"))
    assert drained(planned(scene(*whole, small, pending=[LARGE]), LARGE)) == {"large": ("node-2", 0)}


def test_nor_one_that_was_promised_to_others_there() -> None:
    node = server("node-1", held(1, 0, by="team/a"), mig(1, used=[("3g.20gb", 0)], holder="team/b"))
    snapshot = scene(node, pending=[LARGE, SMALL])
    assert where(planned(snapshot, LARGE)) == {"small": "node-1"}
    assert drained(planned(snapshot, LARGE)) in ({}, {"large": ("node-1", 1)})
    assert drained(planned(replace(snapshot, pending=(LARGE,)), LARGE)) == {"large": ("node-1", 0)}


def test_no_new_partition_is_planned_on_a_node_where_one_of_that_kind_is_drained() -> None:
    node = server("node-1", held(1, 0, by="team/a"), mig(1, used=[("3g.20gb", 0)], holder="team/b"))
    snapshot = scene(node, pending=[LARGE])
    snapshot = replace(following(snapshot, planned(snapshot, LARGE)), pending=(LARGE, SMALL))

    assert where(planned(snapshot, LARGE)) == {}


def test_nothing_is_taken_from_pods_of_a_higher_priority() -> None:
    assert planned(scene(*one_each(1), pending=[LARGE], priority=1), LARGE).drained == ()
    other = pod("other", "1g.5gb", created=3, priority=10)
    assert planned(scene(*one_each(7), pending=[LARGE, other]), LARGE).drained == (), "it waits for such a one"


def test_a_pod_of_a_higher_priority_ends_it_where_it_could_have_the_place() -> None:
    snapshot = scene(*one_each(1), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    urgent = pod("urgent", "3g.20gb", created=30, priority=10)
    snapshot = replace(snapshot, pending=(LARGE, urgent))
    result = planned(snapshot, LARGE)

    assert result.drained == ()
    assert where(planned(following(snapshot, result), LARGE)) == {"urgent": "node-1"}


def test_nor_do_lower_ones_that_want_the_same_hide_it() -> None:
    snapshot = scene(*one_each(1), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    urgent, low = (pod(name, "3g.20gb", created=30, priority=p) for name, p in (("urgent", 10), ("low", 0)))

    assert planned(replace(snapshot, pending=(LARGE, urgent, low)), LARGE).drained == ()


def test_a_pod_of_a_higher_priority_that_comes_with_the_last_release_is_placed_before() -> None:
    snapshot = scene(*one_each(1), pending=[LARGE])
    snapshot = ended(following(snapshot, planned(snapshot, LARGE)), "holder-1")
    urgent = pod("urgent", "3g.20gb", created=30, priority=10)
    # It ages to the priority of this one, and not above the urgent one.
    other = pod("other", "3g.20gb", created=30, priority=5, selector={"disk": "none"})
    elsewhere = replace(urgent, node_selector=other.node_selector)

    assert where(planned(replace(snapshot, pending=(LARGE, urgent, other)), LARGE)) == {"urgent": "node-1"}
    assert where(planned(replace(snapshot, pending=(LARGE, elsewhere, other)), LARGE)) == {"large": "node-1"}


def test_one_for_a_pod_whose_node_was_away() -> None:
    snapshot = scene(*one_each(1, 2, 7, 7), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    away = replace(snapshot, nodes=(replace(snapshot.nodes[0], ready=False), *snapshot.nodes[1:]))
    result = planned(away, LARGE)
    assert drained(result) == {"large": ("node-2", 0)}
    result = planned(replace(following(away, result), nodes=snapshot.nodes), LARGE)

    assert len(result.drained) == 1
    kept = {change.node: [item.drain for item in change.gpus] for change in result.node_changes}
    assert kept == {"node-2": [None]}


def test_only_while_others_that_came_later_run() -> None:
    snapshot = scene(*one_each(1), pending=[LARGE])
    earlier = replace(snapshot, pods=tuple(replace(one, created=1) for one in snapshot.pods))
    assert planned(earlier, LARGE).drained == ()


def test_one_for_each_kind_and_two_at_a_time_and_no_more_than_a_share() -> None:
    second = pod("second", "7g.40gb", created=6)
    half = pod("half", "3g.20gb", created=7)
    third = pod("third", "4g.20gb", created=8)
    nodes = [server(f"node-{n:02}", held(7, by=f"team/holder-{n}")) for n in range(12)]
    snapshot = scene(*nodes, pending=[LARGE, second, half, third])
    waiting = (LARGE, second, half, third)

    assert set(drained(planned(snapshot, *waiting))) == {"large", "half"}
    assert set(drained(planned(snapshot, *waiting, options=PlannerOptions(drains=9)))) == {"large", "half", "third"}
    one = PlannerOptions(drains=9, drained_percent=8)
    assert set(drained(planned(snapshot, *waiting, options=one))) == {"large"}
    assert set(drained(planned(scene(nodes[0], pending=[*waiting]), *waiting))) == {"large"}


def test_one_for_a_namespace_while_others_wait() -> None:
    half, other = pod("half", "3g.20gb", created=6), replace(pod("other", "4g.20gb", created=8), namespace="other")
    nodes = [server(f"node-{n:02}", held(7, by=f"team/holder-{n}")) for n in range(12)]

    assert set(drained(planned(scene(*nodes, pending=[LARGE, half, other]), LARGE, half, other))) == {"large", "other"}
    assert set(drained(planned(scene(*nodes, pending=[LARGE, half]), LARGE, half))) == {"large", "half"}


def test_only_what_is_in_the_way_of_one_instance() -> None:
    half = pod("half", "3g.20gb", created=5)
    result = planned(scene(*one_each(7), pending=[half]), half)

    (found,) = result.drained
    assert 1 < len(found.partitions) < 7


def test_mps_slices_are_drained_as_well() -> None:
    node = server("node-1", mps(used_gb=[10]), partitioning="mps")
    large = pod("large", "40gb", created=1)
    snapshot = scene(node, pending=[large])
    first = planned(snapshot, large)

    assert drained(first) == {"large": ("node-1", 0)}
    later = replace(following(snapshot, first), pending=(large, pod("small", "10gb", created=9)))
    assert where(planned(later, large)) == {}


def test_only_a_node_that_has_room_once_they_have_gone() -> None:
    full = scene(server("node-1", held(1), cpu=6000), pending=[with_cpu(LARGE, 4000)])
    other = replace(holder("node-1", name="other"), requests=(("cpu", 3000),), gpu=())
    assert drained(planned(full, LARGE)) == {"large": ("node-1", 0)}
    assert planned(replace(full, pods=(*full.pods, other)), LARGE).drained == ()


def with_cpu(one: PodView, milli: int) -> PodView:
    return replace(one, requests=tuple(sorted({**dict(one.requests), "cpu": milli}.items())))


def test_gangs_and_pods_that_need_several_gpus_get_none_and_the_next_one_does() -> None:
    two = pod("two", ("7g.40gb", 2), created=1)
    gang = [pod(f"gang-{number}", "7g.40gb", created=2, gang="train", gang_size=2) for number in range(2)]
    result = planned(scene(*one_each(1, 7), pending=[two, *gang, LARGE]), two, *gang, LARGE)

    assert drained(result) == {"large": ("node-1", 0)}


def test_a_holder_that_is_not_known_is_never_waited_for() -> None:
    assert planned(scene(server("node-1", held(1, by="")), pending=[LARGE]), LARGE).drained == ()


def drawn(seed: int, share: float = 1.0) -> Snapshot:
    """Six GPUs of which most are held by pods that came later, and pods of every size and priority that wait."""
    rng = random.Random(seed)
    gpus = [
        held(rng.randint(0, 7), index, by=f"team/holder-{node}-{index}")
        if rng.random() < 0.7
        else mig(index, used=[("3g.20gb", 0)], idle=[("3g.20gb", 4)], holder=f"team/holder-{node}-{index}")
        for node in range(3)
        for index in range(2)
    ]
    nodes = [server(f"node-{node}", *gpus[2 * node : 2 * node + 2]) for node in range(3)]
    pending = [
        pod(f"pod-{number}", rng.choice(["7g.40gb", "4g.20gb", "3g.20gb", "1g.5gb"]), created=number, priority=priority)
        for number, priority in enumerate(rng.choice([0, 0, 0, 5]) for _ in range(rng.randint(1, 9)))
    ]
    long = frozenset(one.uid for one in pending if rng.random() < share)
    return replace(scene(*nodes, pending=pending), drained_for=long)


def test_most_of_these_clusters_drain() -> None:
    assert sum(bool(plan(drawn(seed)).drained) for seed in range(20)) > 10


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.05, 0.5, 1.0]))
def test_any_cluster(seed: int, share: float) -> None:
    """Valid plans, within the limits; without news the next pass changes nothing; no higher priority loses a place."""
    snapshot = drawn(seed, share)
    long = snapshot.drained_for
    result = plan(snapshot)
    check(snapshot, result)

    assert len(result.drained) <= 2
    assert {one.uid for one in result.drained} <= long
    assert result.placed == plan(replace(snapshot, drained_for=frozenset())).placed, "a new drain costs no place"
    second = plan(replace(applied(snapshot, result), drained_for=long))
    assert [change for change in second.node_changes if change.changed] == []
    assert second.drained == result.drained
    for one in result.drained:
        assert not set(one.partitions) & {
            part for other in result.drained if other is not one for part in other.partitions
        }


def test_one_of_a_higher_priority_that_came_after_the_holders_hides_no_older_one() -> None:
    younger = pod("younger", "7g.40gb", created=30, priority=5)
    snapshot = scene(*one_each(1), pending=[LARGE, younger])

    assert drained(planned(snapshot, LARGE, younger)) == {"large": ("node-1", 0)}


def test_who_came_before_the_pod_is_not_waited_for() -> None:
    """It has not overtaken the pod, and it may never end."""
    before, after = held(1, 0, by="team/before"), held(7, 1, by="team/after")
    snapshot = scene(server("node-1", before, after), pending=[LARGE])
    created = {"before": LARGE.created, "after": LARGE.created + 1}
    snapshot = replace(snapshot, pods=tuple(replace(one, created=created[one.name]) for one in snapshot.pods))

    assert [one.holders for one in planned(snapshot, LARGE).drained] == [("team/after",)]

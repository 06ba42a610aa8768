"""A pod that has waited long gets a GPU drained, on which holders that came later run on: which one that is."""

from dataclasses import replace
from typing import Any

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.results import Drained
from controller.model.views import Drain, PlannerOptions, PodView
from controller.planner.draining import choice
from controller.planner.draining.choice import Choice
from crds.v1alpha1.names import Mode
from tests.controller.planner.builders import holder, mig, mps, pod, server
from tests.controller.planner.drain_scenes import (
    LARGE,
    SMALL,
    drained,
    following,
    held,
    message,
    one_each,
    planned,
    scene,
    where,
)


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


def test_nothing_is_drained_where_people_decide() -> None:
    (node, view) = server("node-1", held(1))
    manual, paused = replace(view, mode=Mode.MANUAL), replace(view, paused=True)
    pinned = replace(view, gpus=tuple(replace(gpu, pinned=True) for gpu in view.gpus))
    for kept in (manual, paused, pinned):
        assert planned(scene((node, kept), pending=[LARGE]), LARGE).drained == ()


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


def test_nothing_is_taken_from_pods_of_a_higher_priority() -> None:
    assert planned(scene(*one_each(1), pending=[LARGE], priority=1), LARGE).drained == ()
    other = pod("other", "1g.5gb", created=3, priority=10)
    assert planned(scene(*one_each(7), pending=[LARGE, other]), LARGE).drained == (), "it waits for such a one"


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
    gang = [replace(each, namespace="other", gang="train", gang_size=2) for each in (other, replace(other, uid="2"))]
    waiting = (LARGE, half, *gang)
    assert set(drained(planned(scene(*nodes, pending=[*waiting]), *waiting))) == {"large", "half"}, "for none of a gang"


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


def test_thousands_of_unlike_pods_that_wait_in_vain_cost_a_pass_no_look_at_every_gpu_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their holders came before them, so that nothing is drained for any; another namespace has its drain."""
    asked: list[object] = []
    may_drain = Choice._may_drain

    def counting(*args: Any) -> bool:
        asked.append(args)
        return may_drain(*args)

    monkeypatch.setattr(Choice, "_may_drain", counting)
    monkeypatch.setattr(choice, "LOOKS", 100)
    odd = [pod(f"odd-{one}", "4g.20gb", cpu=1000 + one, namespace="odd", created=30) for one in range(200)]
    good = pod("good", "7g.40gb", namespace="good", created=5, priority=-1)
    nodes = one_each(*[4] * 20)
    result = planned(scene(*nodes, pending=[*odd, good], priority=-1), *odd, good)

    assert drained(result).keys() == {"good"}
    assert len(asked) < 10 * len(nodes)


def test_the_first_of_many_pods_that_have_no_hope_has_its_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find out that the others have none takes the namespace's share before drains are chosen."""
    monkeypatch.setattr(choice, "LOOKS", 100)
    old = pod("old", "7g.40gb", created=5)
    odd = [pod(f"odd-{one}", "7g.40gb", cpu=1000 + one, created=30) for one in range(100)]
    result = planned(scene(*one_each(*[7] * 5), pending=[old, *odd]), old, *odd)
    assert drained(result).keys() == {"old"}


def in_vain(number: int, **more: Any) -> PodView:
    """Unlike every other one, and too large for any node."""
    return pod(f"vain-{number:03}", "7g.40gb", created=1, cpu=10**7 + number, **more)


def test_however_many_wait_in_vain_each_pod_of_their_namespace_has_its_look_within_some_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "LOOKS", 20)
    waiting = [*(in_vain(number) for number in range(40)), LARGE]
    snapshot = scene(*one_each(2, 4), pending=waiting)
    for _ in range(8):
        result = planned(snapshot, *waiting)
        assert result == planned(snapshot, *waiting)
        if drained(result):
            break
        snapshot = replace(snapshot, unexamined=result.unexamined)
    assert drained(result) == {"large": ("node-1", 0)}
    for _ in range(3):
        snapshot = replace(following(snapshot, result), unexamined=result.unexamined)
        result = planned(snapshot, *waiting)
        assert drained(result) == {"large": ("node-1", 0)}


def test_a_pod_of_another_namespace_that_is_alike_and_has_no_look_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "LOOKS", 40)
    twin = pod("twin", "7g.40gb", created=4, namespace="vain")
    waiting = [*(in_vain(number, namespace="vain") for number in range(40)), twin, LARGE]
    assert drained(planned(scene(*one_each(2, 4), pending=waiting), *waiting)) == {"large": ("node-1", 0)}


@pytest.mark.parametrize("first", [(), ("uid-young",), ("uid-old",)])
def test_a_younger_pod_that_had_no_turn_before_keeps_no_older_one_from_a_drain(first: tuple[str, ...]) -> None:
    """It is asked before, and no holder came after it."""
    old, young = pod("old", "7g.40gb", created=5), pod("young", "7g.40gb", created=30)
    snapshot = scene(*one_each(1), pending=[old, young])

    assert drained(planned(replace(snapshot, unexamined=first), old, young)).keys() == {"old"}

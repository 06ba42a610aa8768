"""A drain stays from pass to pass: no new pod comes, and the GPU is cut for the pod once its holders have gone."""

from dataclasses import replace

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.scheduling import SchedulingContext
from controller.model.views import PlannerOptions
from controller.planner.board.assignment import Assignment
from controller.planner.placement.constrained import ConstrainedPlacement
from crds.v1alpha1.names import Mode
from tests.controller.planner.builders import mig, pod, replaced, server
from tests.controller.planner.drain_scenes import (
    LARGE,
    SMALL,
    drained,
    ended,
    following,
    held,
    message,
    one_each,
    planned,
    scene,
    where,
)
from tests.controller.planner.test_effort import HOST, away


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


def test_no_new_partition_is_planned_on_a_node_where_one_of_that_kind_is_drained() -> None:
    node = server("node-1", held(1, 0, by="team/a"), mig(1, used=[("3g.20gb", 0)], holder="team/b"))
    snapshot = scene(node, pending=[LARGE])
    snapshot = replace(following(snapshot, planned(snapshot, LARGE)), pending=(LARGE, SMALL))

    assert where(planned(snapshot, LARGE)) == {}


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


def test_one_whose_agent_is_silent_binds_the_pod_to_no_place() -> None:
    """It may never be heard again, and the drain would come back after each pause."""
    snapshot = scene(*one_each(1, 2), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    silent = replace(snapshot, plans=(replace(snapshot.plans[0], agent_alive=False), snapshot.plans[1]))
    result = planned(silent, LARGE)
    assert drained(result) == {"large": ("node-2", 0)}
    back = replace(following(silent, result), plans=(snapshot.plans[0], following(silent, result).plans[1]))
    assert len(planned(back, LARGE).drained) == 1


def test_when_a_silent_agent_is_back_the_gpu_with_fewest_holders_goes_on() -> None:
    snapshot = scene(*one_each(7, 1), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    silent = replace(snapshot, plans=(snapshot.plans[0], replace(snapshot.plans[1], agent_alive=False)))
    result = planned(silent, LARGE)
    assert drained(result) == {"large": ("node-1", 0)}
    back = replace(following(silent, result), plans=(following(silent, result).plans[0], snapshot.plans[1]))
    assert drained(planned(back, LARGE)) == {"large": ("node-2", 0)}


def test_it_goes_on_when_a_silent_agent_is_back_and_there_was_no_other_place() -> None:
    snapshot = scene(*one_each(1), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    silent = replace(snapshot, plans=(replace(snapshot.plans[0], agent_alive=False),))
    result = planned(silent, LARGE)
    assert result.node_changes == ()
    assert drained(planned(replace(following(silent, result), plans=snapshot.plans), LARGE)) == {"large": ("node-1", 0)}


@pytest.mark.parametrize("node_selector", [(), (("disk", "none"),)])
def test_a_namespace_keeps_one_where_another_that_has_none_could_have_one(
    node_selector: tuple[tuple[str, str], ...],
) -> None:
    half, other = pod("half", "3g.20gb", created=6), pod("other", "4g.20gb", created=8)
    other = replace(other, namespace="other", node_selector=node_selector)
    snapshot = scene(*one_each(*[7] * 12), pending=[LARGE, half])
    snapshot = following(snapshot, planned(snapshot, LARGE, half))
    snapshot = replace(snapshot, pending=(LARGE, half, other))
    result = planned(snapshot, LARGE, half, other)

    assert set(drained(result)) == ({"large", "half"} if node_selector else {"large", "other"})
    again = planned(following(snapshot, result), LARGE, half, other)
    assert again.node_changes == ()
    assert drained(again) == drained(result)


def test_an_agent_that_falls_silent_again_and_again_changes_no_more_than_the_other_drain() -> None:
    """Each change follows news of the agent; its own GPU is drained all the time, whether it is heard or not."""
    snapshot = scene(*one_each(1, 7), pending=[LARGE])
    snapshot = following(snapshot, planned(snapshot, LARGE))
    kept = snapshot.plans[0].planned
    assert kept[0].drain is not None
    for alive, drains in ((False, "node-2"), (True, "node-1")) * 2:
        snapshot = replace(snapshot, plans=(replace(snapshot.plans[0], agent_alive=alive), *snapshot.plans[1:]))
        result = planned(snapshot, LARGE)
        assert drained(result) == {"large": (drains, 0)}
        assert [change.node for change in result.node_changes] == ["node-2"]
        snapshot = following(snapshot, result)
        assert snapshot.plans[0].planned == kept
        assert planned(snapshot, LARGE).node_changes == ()


def test_filters_are_asked_for_the_pod_only_once_its_holders_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask them takes work of its namespace, and ends the turn of one of its pods."""
    near = {"labels": (("app", "apart"),), "anti_affinity": (away("In", "apart"),)}
    apart, other = replaced(LARGE, **near), replaced(pod("other", "7g.40gb", created=7), **near)
    view, gpus = server("node-1", held(1), labels={HOST: "node-1"})
    snapshot = replace(scene((view, gpus), pending=[apart, other]), context=SchedulingContext(namespaces={"team": {}}))
    snapshot = following(snapshot, planned(snapshot, apart))
    asked = []
    accepts = ConstrainedPlacement.accepts

    def counted(self: ConstrainedPlacement, one: Assignment, node: int) -> bool:
        asked.append(one.pod.uid)
        return accepts(self, one, node)

    monkeypatch.setattr(ConstrainedPlacement, "accepts", counted)

    assert drained(planned(snapshot, apart)) == {"large": ("node-1", 0)}
    assert asked == []
    assert where(planned(ended(snapshot, "holder"), apart)) == {"large": "node-1"}
    assert asked == ["uid-large"]

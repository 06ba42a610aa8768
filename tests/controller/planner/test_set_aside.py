"""A pod whose data raises an error is set aside and named, pending or bound; every other pod is planned."""

from dataclasses import replace
from typing import Any, NoReturn

import pytest

from controller.model.reasons import UnplacedReason
from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planner import bound
from controller.planning import plan
from tests.controller.odd.unreadable import ODD
from tests.controller.planner.builders import cluster, holder, mig, pod, replaced, server

AWAY = PodAffinityTerm(
    topology_key="kubernetes.io/hostname",
    selector=LabelSelector(requirements=(Requirement(key="web", operator="Exists"),)),
    namespaces=("team",),
)
ODD_TERM = replace(AWAY, selector=LabelSelector(requirements=ODD))
FIELDS = {
    "labels": ODD,
    "anti_affinity": (AWAY, ODD_TERM),
    "affinity": (ODD_TERM,),
    "spread": ODD,
    "volumes": ODD,
    "tolerations": ODD,
    "node_selector": ODD,
}
ORDINARY = [
    replaced(pod(f"p{number}", "1g.5gb"), anti_affinity=(AWAY,), labels=(("app", "api"),)) for number in range(4)
]


def servers() -> list[Any]:
    return [
        server(f"node-{number}", mig(), labels={"kubernetes.io/hostname": f"node-{number}"}) for number in range(1, 4)
    ]


def places(snapshot: Snapshot) -> dict[str, str]:
    return {placed.key[1]: placed.node for placed in plan(snapshot).placed}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_pending_pod_is_set_aside_and_the_others_are_planned_as_without_it(field: str, position: int) -> None:
    odd = replaced(pod("odd", "1g.5gb"), **{field: FIELDS[field]})
    result = plan(cluster(*servers(), pending=[*ORDINARY[:position], odd, *ORDINARY[position:]]))

    assert [failure.key for failure in result.pod_failures] == [("team", "odd")]
    assert {placed.key[1]: placed.node for placed in result.placed} == places(cluster(*servers(), pending=ORDINARY))
    (missed,) = result.unplaced
    assert (missed.key, missed.reason) == (("team", "odd"), UnplacedReason.NOT_SERVED)
    assert missed.message.startswith("Planning this pod failed (OverflowError)")
    assert result.pod_failures[0].message == "OverflowError: int too large to convert to float"
    assert "in __" in result.pod_failures[0].trace


@pytest.mark.parametrize("field", ["labels", "anti_affinity", "volumes"])
def test_a_bound_pod_that_is_met_while_others_are_judged_is_set_aside(field: str) -> None:
    odd = replaced(holder("node-1", "7g.40gb", name="odd"), **{field: FIELDS[field]})
    usual = holder("node-1", "7g.40gb", name="odd")

    def with_holder(one: PodView) -> Snapshot:
        used = server("node-1", mig(used=[("7g.40gb", 0)], holder="team/odd"))
        return cluster(used, *servers()[1:], pods=[one], pending=ORDINARY)

    result = plan(with_holder(odd))

    assert [failure.key for failure in result.pod_failures] == [("team", "odd")]
    assert {placed.key[1]: placed.node for placed in result.placed} == places(with_holder(usual))
    assert result.unplaced == ()


def test_where_what_a_bound_pod_holds_cannot_be_counted_nothing_is_planned_on_its_node() -> None:
    odd = replaced(holder("node-1", "1g.5gb", name="odd"), requests=ODD)
    result = plan(cluster(*servers(), pods=[odd], pending=ORDINARY))

    assert [failure.node for failure in result.failures] == ["node-1"]
    assert {placed.node for placed in result.placed} <= {"node-2", "node-3"}
    assert len(result.placed) == len(ORDINARY)


def test_many_pods_of_one_namespace_cost_the_others_no_more_than_a_few_passes() -> None:
    odd = [replaced(pod(f"odd-{number:03}", "1g.5gb", namespace="bad"), labels=ODD) for number in range(300)]
    result = plan(cluster(*servers(), pending=[*odd, *ORDINARY]))

    assert len(result.placed) == len(ORDINARY)
    assert {missed.key[0] for missed in result.unplaced} == {"bad"}
    assert len(result.unplaced) == 300
    assert len(result.pod_failures) < 10


def test_the_same_snapshot_sets_the_same_pods_aside() -> None:
    odd = [replaced(pod(f"odd-{n}", "1g.5gb", namespace=f"bad-{n}"), anti_affinity=(ODD_TERM,)) for n in range(3)]
    snapshot = cluster(*servers(), pending=[*odd, *ORDINARY])

    one, other = plan(snapshot), plan(snapshot)

    assert [failure.key for failure in one.pod_failures] == [("bad-0", "odd-0"), ("bad-1", "odd-1"), ("bad-2", "odd-2")]
    assert (one.placed, one.unplaced, one.node_changes) == (other.placed, other.unplaced, other.node_changes)


def test_a_bound_that_cannot_be_computed_costs_the_figure_and_not_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OverflowError("int too large to convert to float")

    snapshot = cluster(*servers(), pending=[*ORDINARY, pod("urgent", "2g.10gb", priority=5)])
    usual = plan(snapshot)
    monkeypatch.setattr(bound, "_measures", fail)
    result = plan(snapshot)

    assert (result.placed, result.node_changes) == (usual.placed, usual.node_changes)
    assert result.bound == 5
    assert result.remarks == ("The bound could not be computed (OverflowError: int too large to convert to float).",)


def test_a_pending_pod_without_a_gpu_is_named_though_no_owner_waits_for_a_gpu() -> None:
    odd = replaced(pod("odd", "1g.5gb"), labels=ODD, gpu=(), requests=())
    requirement = Requirement(key="app", operator="In", values=("web",))
    away = replace(AWAY, selector=LabelSelector(requirements=(requirement,)))  # pods with such a label are counted
    result = plan(cluster(*servers(), pending=[replaced(pod("p", "1g.5gb"), anti_affinity=(away,)), odd]))

    assert [failure.key for failure in result.pod_failures] == [("team", "odd")]
    assert (len(result.placed), result.unplaced) == (1, ())

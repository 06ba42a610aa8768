"""Constraints that keep a pod off no node are taken off it, and no others."""

from dataclasses import replace
from typing import Any

import pytest

from controller.model.demand import demand_of
from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement, SpreadConstraint
from controller.model.views import PodView
from controller.planner.inventory.unconstrained import without_harmless
from tests.controller.planner.builders import cluster, mig, pod, replaced, server

HOST = "kubernetes.io/hostname"
HAS_HOST, BARE = server("n1", mig(0), labels={HOST: "n1"}), server("n2", mig(0))


def selector(operator: str = "In", *values: str) -> LabelSelector:
    return LabelSelector(requirements=(Requirement(key="job", operator=operator, values=values),))


def labelled(name: str, job: str = "j", **fields: Any) -> PodView:
    return replaced(pod(name, "1g.5gb"), labels=(("job", job),), **fields)


def spread(selects: LabelSelector | None, most: int = 1) -> PodView:
    return labelled("p", spread=(SpreadConstraint(topology_key=HOST, max_skew=most, selector=selects),))


def apart(selects: LabelSelector, job: str = "j", **fields: Any) -> PodView:
    term = PodAffinityTerm(topology_key=HOST, selector=selects, namespaces=("team",))
    return labelled("p", job, anti_affinity=(replace(term, **fields),))


J = selector("In", "j")
TWIN = labelled("q")


@pytest.mark.parametrize(
    ("one", "others", "freed"),
    [
        (spread(J), [], True),
        (spread(J), [TWIN], False),
        (spread(J, most=2), [TWIN], True),
        (spread(J), [replaced(TWIN, node="n1", phase="Running")], False),
        (spread(J), [replaced(TWIN, namespace="other")], True),
        (spread(J), [labelled("q", "k")], True),
        (spread(selector("In", "j", "k")), [labelled("q", "k")], False),
        (spread(selector("Exists")), [], False),
        (spread(selector("NotIn", "j")), [], False),
        (spread(None), [], False),
        (apart(J), [], True),
        (apart(J), [TWIN], False),
        (apart(J), [replaced(TWIN, node="n1", phase="Running")], False),
        (apart(J, "k"), [], True),
        (apart(J, "k"), [TWIN], False),
        (apart(J, namespaces=("other",)), [TWIN], True),
        (apart(J, namespaces=("other",)), [replaced(TWIN, namespace="other")], False),
        (apart(J, namespace_selector=LabelSelector()), [], False),
        (apart(selector("Exists")), [], False),
    ],
)
def test_only_what_keeps_a_pod_off_no_node_is_taken_off(one: PodView, others: list[PodView], freed: bool) -> None:
    pods = [other for other in others if other.node]
    snapshot = cluster(HAS_HOST, pods=pods, pending=[one, *(other for other in others if not other.node)])
    (found, *_) = without_harmless([demand_of(one)], snapshot)

    assert (not any(each.hard for each in found.pod.spread) and not found.pod.anti_affinity) == freed
    assert len(found.pod.spread) == len(one.spread), "one that never filters keeps default constraints away"


def test_a_node_without_the_label_is_closed_to_a_pod_that_spreads_by_it() -> None:
    (found,) = without_harmless([demand_of(spread(J))], cluster(HAS_HOST, BARE, pending=[spread(J)]))

    assert found.pod.spread[0].hard

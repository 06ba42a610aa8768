"""The sentence names what keeps a pod off its node, whatever is wrong elsewhere, and doing what it says is enough.

Each defect alone, with each other one on a node that the pod does not name, and with each other one on the same node.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import TypeAlias

import pytest

from controller.model.results import Unplaced
from controller.model.scheduling import NodeSelectorTerm, Requirement, Taint
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from crds.v1alpha1.names import Mode
from tests.controller.explanation.scenarios.scenario import Server, with_gpu, with_node, with_plan
from tests.controller.planner.builders import cluster, mig, pod, server

HOST = "kubernetes.io/hostname"
SSD = NodeSelectorTerm(labels=(Requirement(key="disk", operator="In", values=("ssd",)),))
Case: TypeAlias = tuple[Server, PodView]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """`words` name it, `remedy` is what the sentence requests; `of_filters`: a filter of the scheduler finds it."""

    words: str
    remedy: str
    of_filters: bool = False
    made: Callable[[Server, PodView], Case]


def of_node(**fields: object) -> Callable[[Server, PodView], Case]:
    return lambda one, view: (with_node(one, **fields), view)


def of_plan(**fields: object) -> Callable[[Server, PodView], Case]:
    return lambda one, view: (with_plan(one, **fields), view)


DEFECTS = {
    "taint": Defect(
        words="taint team=b:NoSchedule",
        remedy="Add a toleration for it to the pod.",
        of_filters=True,
        made=of_node(taints=(Taint(key="team", value="b", effect="NoSchedule"),)),
    ),
    "cordon": Defect(words="cordoned", remedy="to uncordon", of_filters=True, made=of_node(unschedulable=True)),
    "selector": Defect(
        words="the pod's node selector zone=x",
        remedy="Change the pod's node selector.",
        of_filters=True,
        made=lambda one, view: (one, replace(view, node_selector=(*view.node_selector, ("zone", "x")))),
    ),
    "affinity": Defect(
        words="the pod's required node affinity",
        remedy="Change the pod's node affinity.",
        of_filters=True,
        made=lambda one, view: (one, replace(view, node_affinity=(SSD,))),
    ),
    "paused": Defect(words="paused", remedy="Ask the owner of the plan to resume it.", made=of_plan(paused=True)),
    "manual": Defect(words="mode Manual", remedy="Add the partition to", made=of_plan(mode=Mode.MANUAL)),
    "not enabled": Defect(words="not enabled", remedy="to label the node", made=of_node(partitioning=None)),
    "other label": Defect(
        words="serves MPS slices only", remedy="a node that serves", made=of_node(partitioning="mps")
    ),
    "not ready": Defect(
        words="is not ready, or deleted", remedy="the conditions of the node", made=of_node(ready=False)
    ),
    "MIG mode": Defect(
        words="MIG mode is off",
        remedy="-mig 1",
        made=lambda one, view: (with_gpu(one, mig_enabled=False), view),
    ),
}


def case(*defects: str, name: str = "n1") -> Case:
    """A node with these, and a pod that names it by its host name, or by nothing where that is the defect."""
    found = server(name, mig(), labels={HOST: name}), pod("a", "1g.5gb", selector={HOST: name})
    for defect in defects:
        found = DEFECTS[defect].made(*found)
    return found


def answer(*servers: Server, pending: PodView) -> Unplaced | None:
    snapshot: Snapshot = cluster(*servers, pending=[pending])
    return next(iter(plan(snapshot).unplaced), None)


@pytest.mark.parametrize("defect", DEFECTS)
def test_one_defect_is_named_with_its_remedy(defect: str) -> None:
    one, view = case(defect)
    found = answer(one, pending=view)

    assert found is not None
    assert DEFECTS[defect].words in found.message
    assert DEFECTS[defect].remedy in found.message


@pytest.mark.parametrize(("defect", "noise"), [*permutations(DEFECTS, 2)])
def test_what_is_wrong_with_other_nodes_is_not_named(defect: str, noise: str) -> None:
    one, view = case(defect)
    other, _ = case(noise, name="n2")
    found = answer(one, other, pending=view)

    assert found is not None
    assert DEFECTS[defect].remedy in found.message, found.full
    assert noise in ("selector", "affinity") or DEFECTS[noise].remedy not in found.message, found.full


@pytest.mark.parametrize(("first", "second"), [*combinations(DEFECTS, 2)])
def test_doing_what_each_sentence_says_makes_the_pod_run(first: str, second: str) -> None:
    left = {first, second}
    one, view = case(*sorted(left))
    found = answer(one, pending=view)
    while found is not None:
        named = {name for name in left if DEFECTS[name].remedy in found.message}
        assert named, (left, found.full)
        assert all(DEFECTS[name].words in found.message for name in named), found.full
        left -= named
        one, view = case(*sorted(left))
        found = answer(one, pending=view)


@pytest.mark.parametrize(
    ("first", "second"), [*combinations([name for name, one in DEFECTS.items() if one.of_filters], 2)]
)
def test_all_that_filters_find_is_named_at_once(first: str, second: str) -> None:
    one, view = case(first, second)
    found = answer(one, pending=view)

    assert found is not None
    assert DEFECTS[first].remedy in found.message
    assert DEFECTS[second].remedy in found.message

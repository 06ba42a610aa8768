"""Which version of plan and Node counts: what a watch brought, or the answer to our own write."""

import pytest

from crds.v1alpha1.names import TAINT_CHANGING
from kube.latest import LatestVersion
from nodeagent.desired.plan import ObservedPlan
from nodeagent.observed.node import ObservedNode, parse_node


def test_an_older_event_does_not_undo_our_own_write() -> None:
    def version(number: int, changing: bool) -> ObservedNode:
        taint = [{"key": TAINT_CHANGING, "effect": "NoSchedule"}] if changing else []
        metadata = {"name": "n", "uid": "u", "resourceVersion": str(number)}
        return parse_node({"metadata": metadata, "spec": {"taints": taint}})

    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, version(5, changing=False))
    latest.accept(version(7, changing=True))
    latest.on_event(None, None, version(6, changing=False))
    found = latest.get()
    assert found is not None
    assert found.changing
    latest.on_event(None, None, version(8, changing=False))
    found = latest.get()
    assert found is not None
    assert not found.changing


def plan_of(version: int, generation: int = 3, uid: str = "u") -> ObservedPlan:
    return ObservedPlan(uid=uid, generation=generation, version=str(version), content=None)


@pytest.mark.parametrize(
    ("brought", "believed"),
    [
        pytest.param(plan_of(103), False, id="late"),
        pytest.param(plan_of(106), True, id="newer"),
        pytest.param(plan_of(90, generation=2), True, id="the watch itself went back: etcd was restored"),
        pytest.param(plan_of(104, generation=4), True, id="a spec that was written after a restore"),
        pytest.param(plan_of(7, generation=1, uid="v"), True, id="created again"),
        pytest.param(None, True, id="deleted"),
    ],
)
def test_what_the_watch_brings_is_believed_unless_it_is_late(brought: ObservedPlan | None, believed: bool) -> None:
    latest, written = LatestVersion[ObservedPlan](), plan_of(105)
    latest.on_event(None, None, plan_of(100))
    latest.accept(written)

    latest.on_event(None, None, brought)

    assert latest.get() is (brought if believed else written)


def test_the_answer_to_a_write_does_not_bring_back_what_was_deleted() -> None:
    latest = LatestVersion[ObservedPlan]()
    latest.on_event(None, None, plan_of(100))
    latest.on_event(None, None, None)

    latest.accept(plan_of(99))

    assert latest.get() is None

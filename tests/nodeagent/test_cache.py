"""Which version of plan and Node counts, a watch's or the answer to our own write; and which pods make a pass due."""

from typing import Any

import pytest

from crds.v1alpha1.names import TAINT_CHANGING
from kube.latest import LatestVersion
from nodeagent.cache import NodeCache
from nodeagent.desired.plan import ObservedPlan
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import NodePod
from tests.clock import Clock


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


def pod_of(**more: Any) -> NodePod:
    return NodePod(uid="u", namespace="default", name="a", **more)


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        pytest.param(None, pod_of(), False, id="bound, and requests no GPU"),
        pytest.param(pod_of(), pod_of(handled=True, began="t"), False, id="started"),
        pytest.param(pod_of(handled=True), pod_of(handled=True, ended=True), False, id="ended"),
        pytest.param(pod_of(handled=True), None, False, id="gone"),
        pytest.param(None, pod_of(containers=(("main", (("nvidia.com/gpu", 1),)),)), True, id="requests a GPU"),
        pytest.param(pod_of(hidden=(("nvidia.com/gpu", 1),)), None, True, id="had one while it was initialised"),
        pytest.param(pod_of(), pod_of(reported=("GPU-1",)), True, id="reports a device"),
        pytest.param(pod_of(refused="why"), None, True, id="was refused for one"),
        *(
            pytest.param(None, pod_of(**{program: True}), True, id=program)
            for program in ("mig_manager", "device_plugin", "dra_driver", "mps_daemon")
        ),
    ],
)
def test_a_pod_makes_a_pass_due_if_it_concerns_gpus(old: NodePod | None, new: NodePod | None, wakes: bool) -> None:
    woken: list[str] = []
    cache = NodeCache(PodBook(clock=Clock()), wake=lambda: woken.append("pass"))

    cache.on_pod(("default", "a"), old, new)

    assert bool(woken) == wakes
    assert [pod for pod in cache.pods.observed().pods] == ([new] if new is not None else []), "it counts all the same"

"""Which node, and the sentences: the texts are those of kube-scheduler 1.36 without resource claims."""

from typing import Any

import pytest

from controller.model.views import NodeView, PodView
from controller.simulator.usage import Usage
from sandbox.scheduler.placement import helped, place, with_nominated
from sandbox.scheduler.records import Failure
from tests.builders import objects
from tests.builders.objects import SLICE
from tests.builders.views import node_view, pod_view


def node(
    name: str, *, slices: int = 0, taint: str = "", labels: dict[str, str] | None = None, pods: int = 10
) -> NodeView:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    amounts = {"cpu": "8", "memory": "32Gi", "pods": str(pods), **({SLICE: str(slices)} if slices else {})}
    return node_view(objects.node(name, labels=labels or {}, spec={"taints": taints}, allocatable=amounts))


def pod(name: str = "p", *, slices: int = 0, cpu: int = 0, **fields: Any) -> PodView:
    return pod_view(objects.pod(name, requests={"cpu": f"{cpu}m", SLICE: slices}, **fields))


def used(*pods: PodView) -> Usage:
    usage = Usage()
    for one in pods:
        usage.add(one)
    return usage


def test_the_sentence_counts_reasons_and_what_preemption_would_bring() -> None:
    nodes = [node("a", slices=1), node("b", taint="x"), node("c", taint="x")]
    answer = place(pod(slices=1), nodes, {"a": used(pod("q", slices=1))}, {})
    assert answer == Failure(
        message="0/3 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb, 2 node(s) had untolerated taint(s). "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling.",
        plugins=frozenset({"NodeResourcesFit", "TaintToleration"}),
    )


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([], "no nodes available to schedule pods"),
        (
            [node("a"), node("b", pods=0)],
            "0/2 nodes are available: 1 Too many pods, 2 Insufficient nvidia.com/mig-1g.10gb. "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
    ],
)
def test_other_sentences(nodes: list[NodeView], sentence: str) -> None:
    answer = place(pod(slices=1), nodes, {}, {})
    assert isinstance(answer, Failure)
    assert answer.message == sentence


def test_claims_are_refused() -> None:
    answer = place(pod(resourceClaims=[{"name": "c"}]), [node("a")], {}, {})
    assert isinstance(answer, Failure)
    assert answer.message.startswith("0/1 nodes are available: 1 cannot allocate all claims.")


def test_the_least_allocated_node_wins_and_ties_are_broken_the_same_way() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert place(pod(cpu=1000), nodes, {"a": used(pod("q", cpu=1000))}, {}) == "b"
    assert place(pod(cpu=1000), nodes, {}, {}) == "a"
    # Equal in CPU and memory, but one holds more pods.
    assert place(pod(), nodes, {"a": used(pod("q", slices=0))}, {}) == "b"


def test_a_nominated_node_comes_first_if_it_fits() -> None:
    nodes = [node("a", slices=1), node("b", slices=1)]
    assert place(pod(slices=1, nominated="b"), nodes, {}, {}) == "b"
    busy = {"b": used(pod("q", slices=1))}
    assert place(pod(slices=1, nominated="b"), nodes, busy, {}) == "a"
    assert place(pod(slices=1, nominated="gone"), nodes, {}, {}) == "a"


@pytest.mark.parametrize(("rival_priority", "wins"), [(0, False), (-1, False), (1, True)])
def test_a_nomination_holds_the_place_against_equals_and_lower(rival_priority: int, wins: bool) -> None:
    held = {"a": [pod("p", slices=1, cpu=1000, nominated="a")]}
    answer = place(pod("rival", slices=1, priority=rival_priority), [node("a", slices=1)], {}, held)
    assert isinstance(answer, str) is wins


def test_a_nomination_holds_cpu_too() -> None:
    held = {"a": [pod("p", slices=1, cpu=5000, nominated="a")]}
    assert isinstance(place(pod("rival", cpu=4000), [node("a")], {}, held), Failure)


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        (node("a"), node("a", slices=1), True),
        (None, node("a", slices=1), True),
        (None, node("a"), False),  # a new node on which the pod cannot run
        (node("a", slices=1), node("a", slices=2), True),
        (node("a", slices=2), node("a", slices=1), False),
        (node("a", slices=1), node("a", slices=1, pods=11), True),
        (node("a", slices=1), node("a", slices=1, labels={"x": "y"}), False),
        (node("a", slices=1, taint="x"), node("a", slices=1), True),
        (node("a", slices=1), node("a", slices=1, taint="x"), False),
        (node("a", taint="x"), node("a", slices=1, taint="x"), False),
    ],
)
def test_changes_of_a_node_that_help(old: NodeView | None, new: NodeView, helps: bool) -> None:
    assert helped(pod(slices=1), old, new) is helps


def test_a_label_helps_whom_it_kept_out() -> None:
    picky = pod(slices=1, nodeSelector={"zone": "a"}, tolerations=[{"operator": "Exists"}])
    assert helped(picky, node("a", slices=1), node("a", slices=1, labels={"zone": "a"}))
    assert not helped(picky, node("a", slices=1, taint="x"), node("a", slices=1))


def test_a_larger_request_than_the_node_is_never_helped() -> None:
    assert not helped(pod(slices=3), node("a", slices=1), node("a", slices=2))
    assert helped(pod(slices=3), node("a", slices=2), node("a", slices=3))


def test_nominated_pods_count_unless_their_priority_is_lower() -> None:
    usage, incoming = Usage(), pod("a", cpu=600, priority=5)

    for priority, held in ((4, 0), (5, 600), (6, 600)):
        nominated = [pod("b", cpu=600, priority=priority)]
        assert with_nominated(usage, incoming, nominated).held["cpu"] == held
    assert with_nominated(usage, incoming, [incoming]) is usage
    assert usage.held.pods == 0
